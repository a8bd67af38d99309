"""File stamps: they identify the state of a file and are the keys of all caches of file contents."""

from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from ..core.patterns import is_url


class Stamp(NamedTuple):
    """A file and its state. tag: the ETag of a remote object, "" if the service gives none."""

    path: str
    size: int
    mtime_ns: int
    tag: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether `path` is a URL."""
        return is_url(self.path)

    @property
    def detects_changes(self) -> bool:
        """Whether changed data changes the stamp; False for a web server that gives neither tag nor time."""
        return bool(self.tag or self.mtime_ns)

    def describe(self) -> dict[str, object]:
        """This file's part of an input's fingerprint. The time of a remote object counts only if it has no tag."""
        name = PurePosixPath(unquote(self.path) if self.is_remote else self.path).name
        state = {"tag": self.tag} if self.tag else {"mtime_ns": self.mtime_ns}
        return {"name": name, "size": self.size, **state}
