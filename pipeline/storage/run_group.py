"""The group of a run: what a URL holds, by its names and its zarr.json, and the attributes of a run."""

import json
import os
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..core.errors import ConfigError, CorruptChunk, DamagedStore, LleError, NoRunYet, listed
from . import records
from .array_specs import FORMAT_VERSION
from .bundles import Bundles
from .records import FORMAT, opened_node, sealed_node

METRICS, METRICS_CRC = "report/metrics.json", "_run/metrics_crc.json"
GROUP = {"attributes": {}, "zarr_format": 3, "node_type": "group"}
POINTER, VERSIONS = "published.json", "versions"  # in a root of versions: the published version, the folder of all
ELSEWHERE = "choose another output.store"
FIT = "fit"
"""Group of the fit in a store with placed rows (input.fit_sample), and the attribute of the store that names it."""


class Place(NamedTuple):
    """The content of a URL: its kind, and a description for messages."""

    kind: Literal["empty", "run", "other version", "damaged", "versions", "foreign"]
    description: str


class RunGroup(Bundles):
    """Bundles and JSON objects under one URL, with the attributes of a run."""

    def identify(self) -> Place:
        """What the URL holds; foreign content is described by its first few names. Raises StoreError.

        A zarr.json that does not match its checksums is read a second time, because bytes can be damaged in transfer.
        """
        place = self._identify()
        return place if place.kind in {"run", "empty", "versions"} else self._identify()

    def _identify(self) -> Place:
        if isinstance(folder := self.objects.place(), str) and Path(folder).is_file():
            return Place("foreign", "a file, not a folder")
        document = self.objects.get("zarr.json")
        if document is None and self.has_versions():
            return Place("versions", "the versions of a job with output.keep")
        node = None if document is None else _group(document)
        if node is not None and (version := node["attributes"].get(FORMAT)) is not None:
            if version != FORMAT_VERSION:
                return Place("other version", f"store format {version}")
            return Place("damaged" if opened_node("", node) is None else "run", f"store format {version}")
        names = self.objects.names("")
        other_names = [name for name in names if not name.startswith("_run/")]
        if not other_names:
            outer = self._outer_group()
            return Place("foreign", f"a place inside the Zarr data of {outer}") if outer else Place("empty", "nothing")
        if any(name.startswith("_run/steps/") for name in names):
            return Place("damaged", "a run without a readable zarr.json")
        owner = "other files" if node is None else "zarr data of another program"
        return Place("foreign", f"{owner}: {_shown(other_names)}")

    def _outer_group(self) -> Path | None:
        """The folder above this one with Zarr data, of which --fresh or a copy takes all; None if there is none."""
        if not isinstance(folder := self.objects.place(), str):
            return None
        path = Path(os.path.abspath(folder))  # without `..`, unlike Path.absolute
        parents = path.parent.parents if path.name == FIT else path.parents
        metadata = ("zarr.json", ".zgroup", ".zarray")
        return next((parent for parent in parents if any((parent / name).is_file() for name in metadata)), None)

    def require_run(self) -> None:
        """Check that this URL holds a readable run.

        Raises NoRunYet if there is nothing, ConfigError for other data or another format, StoreError for a damaged run.
        """
        place = self.identify()
        if place.kind in {"empty", "versions", "foreign"}:
            kind = NoRunYet if place.kind == "empty" else ConfigError
            raise kind(
                f"{self.url}: no run has been started there. Expected the store of a run, found {place.description}; "
                f"give the path or URL of output.store in its config"
            )
        self.is_run()

    def is_run(self, cure: str = ELSEWHERE) -> bool:
        """Whether a run of this format exists here; False for an empty place. `cure` is the advice to a writer.

        Raises ConfigError for foreign data or another format, StoreError for a damaged run.
        """
        if (kind := self._kind(cure)) == "damaged":
            raise self._damaged()
        return kind == "run"

    def is_readable(self) -> bool:
        """As `is_run`, but False for what cannot be read: damaged, of another format, or deleted by hand."""
        try:
            return self.is_run()
        except LleError:
            return False

    def can_resume(self) -> bool:
        """As `is_run`, but also true for a run whose zarr.json is damaged, because `mend` restores it."""
        return self._kind() != "empty"

    def may_erase(self) -> bool:
        """Whether --fresh may erase data here: runs of any format, also damaged ones. Raises ConfigError."""
        return self._kind(any_version=True) != "empty"

    def _kind(self, cure: str = ELSEWHERE, any_version: bool = False) -> str:
        """The kind of place. Raises ConfigError for versions, foreign data and (unless any_version) other formats."""
        place = self.identify()
        if place.kind == "versions":
            raise ConfigError(f"{self.url}: holds {place.description}, not one run; set output.keep, or {cure}")
        if place.kind == "foreign":
            raise ConfigError(
                f"{self.url}: expected an empty place or a store of this program, found {place.description}; {cure}"
            )
        if place.kind == "other version" and not any_version:
            raise ConfigError(
                f"{self.url}: expected a run of store format {FORMAT_VERSION}, found {place.description}; read it with "
                f"the version of the program that wrote it, or compute it again: `lle run CONFIG --fresh`"
            )
        return place.kind

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
        return self.objects.exists(POINTER) or any(map(is_id, self.objects.folders(VERSIONS)))

    def create_group(self, attributes: dict[str, object]) -> None:
        """Create the group if it does not exist and set its attributes, in one write: no group is without them."""
        exists = self.objects.exists("zarr.json")
        earlier = self.attributes() if exists and self._kind(any_version=True) == "run" else {}
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
        try:
            return self._node(name) is not None
        except CorruptChunk:
            return False


def _document(name: str) -> str:
    return f"{name}/zarr.json".lstrip("/")


def _group(document: bytes) -> dict[str, Any] | None:
    """The content of a zarr.json; None if it does not describe a group."""
    try:
        content = json.loads(document)
    except (ValueError, RecursionError):
        return None
    is_node = isinstance(content, dict) and isinstance(content.get("node_type"), str)
    return content if is_node and isinstance(content.get("attributes"), dict) else None


def is_id(version: str) -> bool:
    """Whether a folder name has the form of a version id: a time and four hex digits. Other folders are left alone.

    >>> is_id("20260102T030405Z-9f3e"), is_id("../other"), is_id("notes"), is_id("")
    (True, False, False, False)
    """
    return re.fullmatch(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}", version) is not None


def _shown(names: list[str]) -> str:
    """The first few top-level files and folders."""
    return listed(list(dict.fromkeys(name.split("/")[0] + "/" * ("/" in name) for name in names)), 5)
