"""Where a config that others wrote may point: the places that an operator lists in LLE_ALLOWED_PLACES."""

import glob
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from pipeline.core.errors import ConfigError

VARIABLE = "LLE_ALLOWED_PLACES"
PLACES = {
    "input.path", "input.url", "input.labels", "neighbors.precomputed.path", "neighbors.precomputed.url",
    "neighbors.k_per_point", "embedding.align", "output.store", "output.prometheus",
    "execution.cluster.tls.ca", "execution.cluster.tls.cert", "execution.cluster.tls.key",
    "execution.cluster.log_directory", "execution.cluster.local_directory",
}  # fmt: skip
LABELS = {"input.labels", "neighbors.k_per_point"}
FILES = {"npy", "idx"}  # kinds of input whose labels are a file of their own; of others an array, a key or a column
PREVIOUS = ("embedding.align", "previous")  # under output.store
FILLED_IN = "execution.cluster.local_directory"  # by the shell of a node, where nobody can check it
COMMANDS = {  # what in a config runs as code, or hands code to whoever answers
    "execution.cluster.address": "a scheduler may run code in this process and on its workers",
    "execution.cluster.prologue": "its lines are shell commands",
    "execution.cluster.directives": "they are options of sbatch",
}


def check_places(config: dict[str, Any]) -> None:
    """Raises ConfigError for a path or URL outside the places that LLE_ALLOWED_PLACES lists; without it, all are free.

    config: resolved, with every default. The variable holds paths and URLs, separated by spaces.
    """
    allowed = os.environ.get(VARIABLE)
    if allowed is None:
        return
    places = [_settled(place) for place in allowed.split()]
    for key, value in _strings(config):
        if key in COMMANDS:
            raise ConfigError(f"{key}: not from a config while {VARIABLE} is set: {COMMANDS[key]}. Remove the key")
        if key == FILLED_IN and "$" in value:
            raise ConfigError(f"{key}: {value}: no variables while {VARIABLE} is set: write the folder itself")
        named = (key in LABELS and config["input"]["kind"] not in FILES) or (key, value) == PREVIOUS
        if key not in PLACES or named:
            continue
        for found in _meant(value):
            if not any(_inside(found, place) for place in places):
                raise ConfigError(
                    f"{key}: {found} lies outside the places this machine allows ({VARIABLE}: {allowed}); choose one "
                    f"inside, or ask whoever runs this machine"
                )


def _strings(data: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _strings(value, f"{key}.{name}" if key else name)
    elif isinstance(data, list):
        for value in data:
            yield from _strings(value, key)
    elif isinstance(data, str):
        yield key, data


def _meant(text: str) -> Iterator[str]:
    """The place a path or URL means, all that it matches where it is a pattern, and where links below lead."""
    if _is_url(text):
        yield text
        return
    for each in (_local(text), *glob.glob(_local(text), recursive=True)):
        yield (found := os.path.realpath(each))
        yield from _links_below(found)


def _links_below(folder: str) -> Iterator[str]:
    """Where the links in a folder and in folders that they lead to end; nothing for a file."""
    waiting, seen = [folder], set[str]()
    while waiting:
        if (here := waiting.pop()) in seen:
            continue
        seen.add(here)
        for top, folders, files in os.walk(here):
            links = [path for name in (*folders, *files) if os.path.islink(path := os.path.join(top, name))]
            for end in map(os.path.realpath, links):
                yield end  # before it is entered: whoever finds it outside stops here
                waiting.append(end)


def _settled(text: str) -> str:
    """A path without links and dots, a URL as it is."""
    return text if _is_url(text) else os.path.realpath(_local(text))


def _local(text: str) -> str:
    """The path, or the pattern, that a text means on this machine: file:// URLs are read as patterns too."""
    return os.path.expanduser(unquote(urlsplit(text).path) if text.startswith("file:") else text)


def _is_url(text: str) -> bool:
    return "://" in text and not text.startswith("file:")


def _inside(found: str, place: str) -> bool:
    # Clients of web addresses take a backslash for a slash, and overlook tabs and line breaks.
    dotted = _is_url(found) and ".." in re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", unquote(found)))
    return not dotted and (found == place or found.startswith(place.rstrip("/") + "/"))
