"""Paths and URLs in a config, and the paths that match a pattern, found in a bounded part of the disk."""

import glob
import os
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from .errors import InputError

MAX_ENTRIES = 200_000
"""Files and folders that a pattern may search: a second on a local disk, minutes on a slow network."""

PACKED = (".gz", ".bz2", ".xz", ".zst")
"""Ends of the names of compressed files."""


def is_url(text: str) -> bool:
    """Whether a path is a URL, except file: URLs."""
    return "://" in text and not text.startswith("file:")


def local_path(text: str) -> str:
    """The local path or pattern of a text, with file: URLs and ~ resolved."""
    return os.path.expanduser(unquote(urlsplit(text).path) if text.startswith("file:") else text)


def matches(pattern: str) -> list[str]:
    """The paths that match a pattern, sorted, each once; none for a path that does not exist.

    `**` stands for any folders that are not hidden, including none. A folder to which several links lead is searched
    once. Raises InputError if `**` searches more than MAX_ENTRIES files and folders.
    """
    parts = pattern.split(os.sep)
    if "**" not in parts:
        return sorted(glob.glob(pattern))
    first = parts.index("**")
    rest = os.sep.join(parts[first + 1 :] or ["*"])
    tops = glob.glob(os.sep.join([*parts[:first], ""])) if first else [""]
    folders = [folder for top in tops for folder in _folders(top, pattern)]
    return sorted({path for folder in folders for path in matches(glob.escape(folder) + rest)})


def _folders(top: str, pattern: str) -> Iterator[str]:
    """A folder, and those below it that are not hidden, each with a separator at its end; "" is the current folder."""
    visited, n_entries = {os.path.realpath(top or os.curdir)}, 0
    for path, folders, files in os.walk(top or os.curdir, followlinks=True):
        n_entries += len(folders) + len(files)
        if n_entries > MAX_ENTRIES:
            raise InputError(
                f"the pattern '{pattern}' searches more than {MAX_ENTRIES:,} files and folders below "
                f"'{top or os.getcwd()}'; name a folder closer to the files"
            )
        name = path if top else os.path.relpath(path)
        yield "" if name == os.curdir else os.path.join(name, "")
        # The paths must not depend on the order of the file system: a folder counts, not a link to it.
        links = {name for name in folders if os.path.islink(os.path.join(path, name))}
        chosen = dict[str, str]()
        for name in [*sorted({*folders} - links), *sorted(links)]:
            if name[0] != ".":
                chosen.setdefault(os.path.realpath(os.path.join(path, name)), name)
        folders[:] = sorted(name for place, name in chosen.items() if place not in visited)
        visited.update(chosen)
