"""What tells one state of a file from another: the key of everything that is cached about it."""

from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote


class Stamp(NamedTuple):
    """A file and the state it is in. tag: the ETag of an object behind a URL, "" where the service gives none."""

    path: str
    size: int
    mtime_ns: int
    tag: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether `path` is a URL."""
        return is_url(self.path)

    @property
    def can_tell(self) -> bool:
        """Whether other data would have another stamp; False for a web server that tells neither tag nor time."""
        return bool(self.tag or self.mtime_ns)

    def describe(self) -> dict[str, Any]:
        """The part of an input's fingerprint that belongs to this file; an object's time counts where it has no tag."""
        name = PurePosixPath(unquote(self.path) if self.is_remote else self.path).name
        state = {"tag": self.tag} if self.tag else {"mtime_ns": self.mtime_ns}
        return {"name": name, "size": self.size, **state}


def is_url(text: str) -> bool:
    """Whether a path is a URL of something else than this machine's files."""
    return "://" in text and not text.startswith("file:")
