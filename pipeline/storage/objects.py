"""Whole objects (markers, the lock, bundles, report files) under one URL: in memory, a folder, or an object store.

Every write is atomic. `create` is conditional: it succeeds for exactly one of several writers.
"""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlparse

from ..core.credentials import refuse_secret
from ..core.errors import StoreError
from .local_objects import LocalObjects
from .object_protocol import Head, Objects
from .remote_objects import RemoteObjects

SCHEME = "process-memory"

roots: dict[str, dict[str, tuple[object, float]]] = {}
"""URL -> name -> (content, time of writing). A content is bytes, or what `StoreInMemory` keeps as Python objects."""


class MemoryObjects(Objects):
    """Objects in the memory of this process, for the temporary store of a small fit: no file is written.

    Each operation on the dictionary of a root is atomic, so threads may share a root.
    """

    def __init__(self, url: str) -> None:
        if url not in roots:
            raise StoreError(f"{url}: this store in memory was deleted, or belongs to another process")
        self.url, self.contents = url, roots[url]

    def put(self, name: str, data: object) -> None:
        self.contents[name] = data, time.time()

    def create(self, name: str, data: object) -> bool:
        entry = data, time.time()
        return self.contents.setdefault(name, entry) is entry

    def get(self, name: str) -> Any:
        return self.contents.get(name, (None,))[0]

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        content = self.get(name)
        return None if content is None else content[start : start + length]

    def names(self, prefix: str) -> list[str]:
        folder = f"{prefix}/" if prefix else ""
        return sorted([name for name in list(self.contents) if name.startswith(folder)])

    def folders(self, prefix: str) -> list[str]:
        start = len(prefix) + 1 if prefix else 0
        return sorted({name[start:].split("/")[0] for name in self.names(prefix) if "/" in name[start:]})

    def copy(self, names: Sequence[str], source: Objects) -> None:
        for name in names:
            self.put(name, source.get(name))

    def head(self, name: str) -> Head | None:
        if (entry := self.contents.get(name)) is None:
            return None
        content, written = entry
        return Head(len(content) if isinstance(content, bytes) else int(getattr(content, "nbytes", 0)), written)

    def delete(self, name: str) -> None:
        for key in [name, *self.names(name)]:
            self.contents.pop(key, None)

    def place(self) -> None:
        """None: zarr does not read this root."""


def open_objects(url: str) -> Objects:
    """The objects under a path, a file:// URL, a store in memory, or any URL that obstore supports (s3://, gs://, az://)."""
    if url.startswith(f"{SCHEME}://"):
        return MemoryObjects(url)
    refuse_secret(url)
    parsed = urlparse(url)
    if parsed.scheme in {"", "file"} or len(parsed.scheme) == 1:
        return LocalObjects(unquote(parsed.path) if parsed.scheme == "file" else url)
    return RemoteObjects(url)
