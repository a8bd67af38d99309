"""The group of a run: whether a URL holds one, and its attributes."""

from typing import Any

from ..core.errors import ConfigError, StoreError
from .array_specs import FORMAT_VERSION
from .bundles import Bundles
from .locate import Kind, has_versions, identify
from .records import CHECKED, FORMAT, are_as_written, with_checksums


class RunGroup(Bundles):
    """Bundles and JSON objects under one URL, with the attributes of a run."""

    def require_run(self) -> None:
        """Check that this URL holds a readable run.

        Raises ConfigError if there is none or its format differs, StoreError if it is damaged.
        """
        place = identify(self.objects)
        if place.kind == "other version":
            raise ConfigError(
                f"{self.url}: expected a run of store format {FORMAT_VERSION}, found {place.description}; read it with "
                f"the version of the program that wrote it, or compute it again: `lle run CONFIG --fresh`"
            )
        if place.kind not in {"run", "damaged"}:
            raise ConfigError(
                f"{self.url}: no run has been started there. Expected the store of a run, found {place.description}; "
                f"give the path or URL of output.store in its config"
            )
        self.is_run()

    def is_run(self, cure: str = "choose another output.store") -> bool:
        """Whether a run of this format exists here; False for an empty place. `cure` is the advice to a writer.

        Raises ConfigError for foreign data or another format, StoreError for a damaged run.
        """
        kind = self._kind(cure)
        if kind == "other version":
            raise ConfigError(
                f"{self.url}: store format {self.attributes()['lle_format']}, this version writes {FORMAT_VERSION}; "
                f"use another output.store or --fresh"
            )
        if kind == "damaged":
            raise StoreError(f"{self.url}: its zarr.json cannot be read; run with --fresh to start again")
        return kind == "run"

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

    def create_group(self, attributes: dict[str, Any]) -> None:
        """Create the group if it does not exist and set its attributes, in one write: no group is without them."""
        exists = self.objects.exists("zarr.json")
        earlier = self.attributes() if exists and self._kind() == "run" else {}
        merged = with_checksums({**earlier, FORMAT: FORMAT_VERSION, **attributes})
        self.put_json("zarr.json", {"attributes": merged, "zarr_format": 3, "node_type": "group"})

    def attributes(self) -> dict[str, Any]:
        """The group's attributes: format version, resolved config, input fingerprint, package versions.

        Raises StoreError if there are none or they are damaged.
        """
        content = self.get_record("zarr.json", {"attributes": {}})
        if content is None or not are_as_written(content["attributes"]):
            raise StoreError(f"{self.url}: its zarr.json cannot be read; run with --fresh to start again")
        return {key: value for key, value in content["attributes"].items() if key != CHECKED}
