"""The group of a run: whether a URL holds one, and its attributes."""

import json
from typing import Any

from ..core.errors import ConfigError, CorruptChunk, DamagedStore, NoRunYet
from . import records
from .array_specs import FORMAT_VERSION
from .bundles import Bundles
from .locate import Kind, has_versions, identify
from .records import FORMAT, opened_node, sealed_node

METRICS, METRICS_CRC = "report/metrics.json", "_run/metrics_crc.json"
GROUP = {"attributes": {}, "zarr_format": 3, "node_type": "group"}


class RunGroup(Bundles):
    """Bundles and JSON objects under one URL, with the attributes of a run."""

    def require_run(self) -> None:
        """Check that this URL holds a readable run.

        Raises NoRunYet if there is nothing, ConfigError for other data or another format, StoreError for a damaged run.
        """
        place = identify(self.objects)
        if place.kind == "other version":
            raise ConfigError(
                f"{self.url}: expected a run of store format {FORMAT_VERSION}, found {place.description}; read it with "
                f"the version of the program that wrote it, or compute it again: `lle run CONFIG --fresh`"
            )
        if place.kind not in {"run", "damaged"}:
            kind = NoRunYet if place.kind == "empty" else ConfigError
            raise kind(
                f"{self.url}: no run has been started there. Expected the store of a run, found {place.description}; "
                f"give the path or URL of output.store in its config"
            )
        self.is_run()

    def is_run(self, cure: str = "choose another output.store") -> bool:
        """Whether a run of this format exists here; False for an empty place. `cure` is the advice to a writer.

        Raises ConfigError for foreign data or another format, StoreError for a damaged run.
        """
        if not self.can_resume(cure):
            return False
        if self._kind(cure) == "damaged":
            raise self._damaged()
        return True

    def can_resume(self, cure: str = "choose another output.store") -> bool:
        """As `is_run`, but also true for a run whose zarr.json is damaged, because `mend` restores it."""
        kind = self._kind(cure)
        if kind == "other version":
            raise ConfigError(
                f"{self.url}: store format {self.attributes()['lle_format']}, this version writes {FORMAT_VERSION}; "
                f"use another output.store or --fresh"
            )
        return kind in {"run", "damaged"}

    def mend(self, attributes: dict[str, object]) -> bool:
        """Write a damaged zarr.json again, with these attributes and without a config; returns whether it was damaged.

        The steps have their fingerprints, so the next run reuses those that belong to its config.
        """
        is_damaged = self._kind() == "damaged"
        if is_damaged:
            self._put_node("", {**GROUP, "attributes": {FORMAT: FORMAT_VERSION, **attributes}})
        return is_damaged

    def _damaged(self) -> DamagedStore:
        return DamagedStore(
            f"{self.url}: its zarr.json, which holds the config, is damaged. Run its job again: `lle run CONFIG` "
            f"writes it again and keeps all finished blocks"
        )

    def has_versions(self) -> bool:
        """Whether this URL is a root of versions, each with its own store."""
        return has_versions(self.objects)

    def may_erase(self) -> bool:
        """Whether --fresh may erase data here: runs of any format, also damaged ones. Raises ConfigError."""
        return self._kind() != "empty"

    def _kind(self, cure: str = "choose another output.store") -> Kind:
        """The kind of content at the URL. Raises ConfigError for a root of versions or foreign data."""
        place = identify(self.objects)
        if place.kind == "versions":
            raise ConfigError(f"{self.url}: holds {place.description}, not one run; set output.keep, or {cure}")
        if place.kind == "foreign":
            raise ConfigError(
                f"{self.url}: expected an empty place or a store of this program, found {place.description}; {cure}"
            )
        return place.kind

    def create_group(self, attributes: dict[str, object]) -> None:
        """Create the group if it does not exist and set its attributes, in one write: no group is without them."""
        exists = self.objects.exists("zarr.json")
        earlier = self.attributes() if exists and self._kind() == "run" else {}
        self._put_node("", {**GROUP, "attributes": {**earlier, FORMAT: FORMAT_VERSION, **attributes}})

    def attributes(self) -> dict[str, Any]:
        """The group's attributes: format version, resolved config, input fingerprint, package versions.

        Raises StoreError if there are none or they are damaged.
        """
        try:
            node = self._node("")
        except CorruptChunk:
            node = None
        if node is None:
            raise self._damaged()
        attributes: dict[str, Any] = node["attributes"]
        return attributes

    def metrics(self) -> dict[str, Any] | None:
        """The content of metrics.json; None if it is missing, damaged or without its checksum."""
        metrics = self.get_json(METRICS)
        return metrics if self.get_json(METRICS_CRC) == {"content": records.checksum_of(metrics)} else None

    def put_metrics(self, metrics: dict[str, object]) -> None:
        """Write metrics.json. Its checksum is an object of its own, because others read and compare all its keys."""
        self.objects.delete_objects([METRICS_CRC])  # a kill in between leaves metrics without a checksum
        text = json.dumps(metrics, indent=1)
        self.objects.put(METRICS, text.encode())
        self.put_json(METRICS_CRC, {"content": records.checksum_of(json.loads(text))})

    def _put_node(self, name: str, node: dict[str, object]) -> None:
        """Write zarr's metadata of an array or group ("": the group of the run), with their checksums."""
        self.objects.put(_document(name), json.dumps(sealed_node(name, node), indent=1).encode())

    def _node(self, name: str) -> dict[str, Any] | None:
        """Zarr's metadata of an array or group; None if there are none. Raises CorruptChunk if they are damaged."""

        def read() -> dict[str, Any] | None:
            if (data := self.objects.get(_document(name))) is None:
                return None
            try:
                node = opened_node(name, json.loads(data))
            except (ValueError, RecursionError):
                node = None
            if node is None:
                raise CorruptChunk(name, "zarr.json", "its CRC-32 differs")
            return node

        return self._read_twice(_document(name), read)

    def has_metadata(self, name: str) -> bool:
        """Whether there is an array of this name with undamaged metadata."""
        try:
            return self._node(name) is not None
        except CorruptChunk:
            return False


def _document(name: str) -> str:
    return f"{name}/zarr.json".lstrip("/")
