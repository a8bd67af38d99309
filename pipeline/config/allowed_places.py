"""Restrict the paths and URLs of a config to the places that the operator lists in LLE_ALLOWED_PLACES."""

import glob
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from ..core.errors import ConfigError

VARIABLE = "LLE_ALLOWED_PLACES"
PLACES = {
    "input.path", "input.url", "input.labels", "neighbors.precomputed.path", "neighbors.precomputed.url",
    "neighbors.k_per_point", "embedding.align", "output.store", "output.prometheus",
    "execution.cluster.tls.ca", "execution.cluster.tls.cert", "execution.cluster.tls.key",
    "execution.cluster.log_directory", "execution.cluster.local_directory",
}  # fmt: skip
LABELS = {"input.labels", "neighbors.k_per_point"}
FILES = {"npy", "idx"}  # input kinds with a separate file of labels; other kinds name an array, a key or a column
PREVIOUS = ("embedding.align", "previous")  # the previous embedding in output.store, not a path
EXPANDED_LATER = "execution.cluster.local_directory"  # with variables of a node's shell: unknown here
COMMANDS = {  # keys whose values run as code, or that let another process run code
    "execution.cluster.address": "a scheduler may run code in this process and on its workers",
    "execution.cluster.prologue": "its lines are shell commands",
    "execution.cluster.directives": "they are options of sbatch",
}


def check_places(config: dict[str, Any]) -> None:
    """Raises ConfigError for a path or URL outside the places in LLE_ALLOWED_PLACES. If it is not set, all are allowed.

    config: resolved, with every default. The variable holds paths and URLs, separated by spaces.
    """
    allowed = os.environ.get(VARIABLE)
    if allowed is None:
        return
    places = [_real_place(place) for place in allowed.split()]
    for key, value in _strings(config):
        if key in COMMANDS:
            raise ConfigError(
                f"{key}: not allowed in a config while {VARIABLE} is set: {COMMANDS[key]}. Remove the key"
            )
        if key == EXPANDED_LATER and "$" in value:
            raise ConfigError(f"{key}: {value}: no variables allowed while {VARIABLE} is set: write the folder itself")
        is_name = (key in LABELS and config["input"]["kind"] not in FILES) or (key, value) == PREVIOUS
        if key not in PLACES or is_name:
            continue
        for target in _places_of(value):
            if not any(_is_inside(target, place) for place in places):
                raise ConfigError(
                    f"{key}: {target} is outside the places that this machine allows ({VARIABLE}: {allowed}); choose a "
                    f"place inside, or ask the operator of this machine"
                )


def _strings(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for child_key, value in data.items():
            yield from _strings(value, f"{key}.{child_key}" if key else child_key)
    elif isinstance(data, list):
        for value in data:
            yield from _strings(value, key)
    elif isinstance(data, str):
        yield key, data


def _places_of(text: str) -> Iterator[str]:
    """The real path of a text; for a pattern, of every match; and the targets of all links in these folders."""
    if _is_url(text):
        yield text
        return
    for match in (_local_path(text), *glob.glob(_local_path(text), recursive=True)):
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


def _real_place(text: str) -> str:
    """A path without links and dots; a URL unchanged."""
    return text if _is_url(text) else os.path.realpath(_local_path(text))


def _local_path(text: str) -> str:
    """The local path or pattern of a text, with file:// URLs and ~ resolved."""
    return os.path.expanduser(unquote(urlsplit(text).path) if text.startswith("file:") else text)


def _is_url(text: str) -> bool:
    return "://" in text and not text.startswith("file:")


def _is_inside(location: str, place: str) -> bool:
    # HTTP clients treat a backslash as a slash and skip tabs and line breaks.
    dotted = _is_url(location) and ".." in re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", unquote(location)))
    return not dotted and (location == place or location.startswith(place.rstrip("/") + "/"))
