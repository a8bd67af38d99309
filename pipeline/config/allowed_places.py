"""Restrict the paths and URLs of a config to the places that the operator lists in LLE_ALLOWED_PLACES."""

import os
import re
from collections.abc import Iterator
from typing import Literal, get_args, get_origin
from urllib.parse import unquote

from pydantic import BaseModel

from ..core.errors import ConfigError
from ..core.patterns import is_url, local_path, matches
from .fields import NAME, Command

VARIABLE = "LLE_ALLOWED_PLACES"
FILES = {"npy", "idx"}  # input kinds whose neighbors.k_per_point is a file; for the others it is an array or a column
PREVIOUS = ("embedding.align", "previous")  # the previous embedding in output.store, not a path
EXPANDED_LATER = "execution.cluster.local_directory"  # with variables of a node's shell: unknown here


def check_places(section: BaseModel, key: str = "") -> None:
    """Raises ConfigError for a path or URL outside the places in LLE_ALLOWED_PLACES. If it is not set, all are allowed.

    Every string is checked unless its field is marked as a `Name` (config/fields.py), so a new key is checked by
    default. `key` is that of the section. The variable holds paths and URLs, separated by spaces.
    """
    allowed = os.environ.get(VARIABLE)
    if allowed is None:
        return
    places = [place if is_url(place) else os.path.realpath(local_path(place)) for place in allowed.split()]
    source = getattr(section, "input", None)
    for name, value, marks in _texts(section, key):
        if command := next((mark for mark in marks if isinstance(mark, Command)), None):
            raise ConfigError(
                f"{name}: not allowed in a config while {VARIABLE} is set: {command.danger}. Remove the key"
            )
        if name == EXPANDED_LATER and "$" in value:
            raise ConfigError(f"{name}: {value}: no variable allowed while {VARIABLE} is set; write the folder itself")
        is_column = name == "neighbors.k_per_point" and getattr(source, "kind", None) not in FILES
        if NAME in marks or is_column or (name, value) == PREVIOUS:
            continue
        for target in _places_of(value):
            if not any(_is_inside(target, place) for place in places):
                raise ConfigError(
                    f"{name}: {target} is outside the places that this machine allows ({VARIABLE}: {allowed}); choose "
                    f"a place inside, or ask the operator of this machine"
                )


def _texts(section: BaseModel, key: str) -> Iterator[tuple[str, str, list[object]]]:
    """(key, text, marks) of each text in a section; those that its type lists (Literal) are left out."""
    for name, field in type(section).model_fields.items():
        value, child = getattr(section, name), f"{key}.{name}" if key else name
        if isinstance(value, BaseModel):
            yield from _texts(value, child)
            continue
        marks = [*field.metadata, *_marks(field.annotation)]
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and text not in marks:
                yield child, text, marks


def _marks(annotation: object) -> Iterator[object]:
    """The metadata of all parts of an annotation, and the values of its Literals."""
    yield from getattr(annotation, "__metadata__", ())
    for part in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield part
        else:
            yield from _marks(part)


def _places_of(text: str) -> Iterator[str]:
    """The real path of a text; for a pattern, of every match; and the targets of all links in these folders."""
    if is_url(text):
        yield text
        return
    for match in (local_path(text), *matches(local_path(text))):
        yield (path := os.path.realpath(match))
        yield from _links_below(path)


def _links_below(folder: str) -> Iterator[str]:
    """Targets of the links in a folder, and of the links in the folders they lead to; empty for a file."""
    folders_to_read, visited = [folder], set[str]()
    while folders_to_read:
        if (current := folders_to_read.pop()) in visited:
            continue
        visited.add(current)
        for top, folders, files in os.walk(current):
            links = [path for name in (*folders, *files) if os.path.islink(path := os.path.join(top, name))]
            for target in map(os.path.realpath, links):
                yield target  # before the folder is read: the caller stops at the first place outside
                folders_to_read.append(target)


def _is_inside(location: str, place: str) -> bool:
    # HTTP clients treat a backslash as a slash and skip tabs and line breaks.
    dotted = is_url(location) and ".." in re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", unquote(location)))
    return not dotted and (location == place or location.startswith(place.rstrip("/") + "/"))
