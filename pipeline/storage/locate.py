"""What lies at the URL of a store, told from its names and its zarr.json: a run, something else, or nothing."""

import json
import re
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.storage.array_specs import FORMAT_VERSION
from pipeline.storage.object_protocol import Objects

POINTER, VERSIONS = "published.json", "versions"  # of a root: which version counts, and where they all are
NAMED = 5  # files and folders of a foreign place

Kind = Literal["empty", "run", "other version", "damaged", "versions", "foreign"]


class Place(NamedTuple):
    """What lies at a URL, and that in words."""

    kind: Kind
    found: str


def look(objects: Objects) -> Place:
    """What lies there; of what is not this program's, the first few names too. Raises StoreError."""
    if isinstance(folder := objects.place(), str) and Path(folder).is_file():
        return Place("foreign", "a file, not a folder")
    document = objects.get("zarr.json")
    if document is None:
        if has_versions(objects):
            return Place("versions", "the versions of a job with output.keep")
        names = [name for name in objects.names("") if not name.startswith("_run/")]
        return Place("foreign", f"other files: {_shown(names)}") if names else Place("empty", "nothing")
    try:
        content = json.loads(document)
    except ValueError:
        if objects.names("_run/steps"):
            return Place("damaged", "an unreadable zarr.json")
        return Place("foreign", f"an unreadable zarr.json beside {_shown(objects.names(''))}")
    if not isinstance(content, dict) or "lle_format" not in content.get("attributes", {}):
        return Place("foreign", f"zarr data of another program: {_shown(objects.names(''))}")
    written = content["attributes"]["lle_format"]
    return Place("run" if written == FORMAT_VERSION else "other version", f"store format {written}")


def has_versions(objects: Objects) -> bool:
    """Whether this is the root of versions, each a store of its own."""
    return objects.exists(POINTER) or bool(objects.folders(VERSIONS))


def is_id(version: str) -> bool:
    """Whether it can be a version's: its time and four letters. Other folders beside them are somebody else's.

    >>> is_id("20260102T030405Z-9f3e"), is_id("../other"), is_id("notes"), is_id("")
    (True, False, False, False)
    """
    return re.fullmatch(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}", version) is not None


def _shown(names: list[str]) -> str:
    """The first few of the files and folders at the top."""
    tops = list(dict.fromkeys(name.split("/")[0] + "/" * ("/" in name) for name in names))
    return ", ".join(tops[:NAMED]) + (f" and {len(tops) - NAMED} more" if len(tops) > NAMED else "")
