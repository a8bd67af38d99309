"""Identify the content of a store URL by its names and its zarr.json: a run, other data, or nothing."""

import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .array_specs import FORMAT_VERSION
from .object_protocol import Objects
from .records import FORMAT, opened_node

POINTER, VERSIONS = "published.json", "versions"  # in a root of versions: the published version, the folder of all
MAX_NAMES = 5  # listed in a message

Kind = Literal["empty", "run", "other version", "damaged", "versions", "foreign"]


class Place(NamedTuple):
    """The content of a URL: its kind, and a description for messages."""

    kind: Kind
    description: str


def identify(objects: Objects) -> Place:
    """Identify the content of a URL; foreign content is described by its first few names. Raises StoreError.

    A zarr.json that does not match its checksums is read a second time, because bytes can be damaged in transfer.
    """
    place = _identify(objects)
    return place if place.kind in {"run", "empty", "versions"} else _identify(objects)


def _identify(objects: Objects) -> Place:
    if isinstance(folder := objects.place(), str) and Path(folder).is_file():
        return Place("foreign", "a file, not a folder")
    document = objects.get("zarr.json")
    if document is None:
        if has_versions(objects):
            return Place("versions", "the versions of a job with output.keep")
        names = objects.names("")
        other_names = [name for name in names if not name.startswith("_run/")]
        if other_names and any(name.startswith("_run/steps/") for name in names):
            return Place("damaged", "a run without its zarr.json")
        return Place("foreign", f"other files: {_shown(other_names)}") if other_names else Place("empty", "nothing")
    node = _group(document)
    attributes = None if node is None else node["attributes"]
    if attributes is None or FORMAT not in attributes:
        names = objects.names("")
        if any(name.startswith("_run/steps/") for name in names):
            return Place("damaged", "an unreadable zarr.json")
        description = "an unreadable zarr.json beside" if attributes is None else "zarr data of another program:"
        return Place("foreign", f"{description} {_shown(names)}")
    if (version := attributes[FORMAT]) != FORMAT_VERSION:
        return Place("other version", f"store format {version}")
    if opened_node("", node) is None:
        return Place("damaged", "a zarr.json that does not match its checksums")
    return Place("run", f"store format {version}")


def _group(document: bytes) -> dict[str, Any] | None:
    """The content of a zarr.json; None if it does not describe a group."""
    try:
        content = json.loads(document)
    except (ValueError, RecursionError):
        return None
    is_node = isinstance(content, dict) and isinstance(content.get("node_type"), str)
    return content if is_node and isinstance(content.get("attributes"), dict) else None


def has_versions(objects: Objects) -> bool:
    """Whether this URL is a root of versions, each with its own store."""
    return objects.exists(POINTER) or any(map(is_id, objects.folders(VERSIONS)))


def is_id(version: str) -> bool:
    """Whether a folder name has the form of a version id: a time and four hex digits. Other folders are left alone.

    >>> is_id("20260102T030405Z-9f3e"), is_id("../other"), is_id("notes"), is_id("")
    (True, False, False, False)
    """
    return re.fullmatch(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}", version) is not None


def _shown(names: list[str]) -> str:
    """The first few top-level files and folders."""
    top_names = list(dict.fromkeys(name.split("/")[0] + "/" * ("/" in name) for name in names))
    n_more = len(top_names) - MAX_NAMES
    return ", ".join(top_names[:MAX_NAMES]) + (f" and {n_more} more" if n_more > 0 else "")
