"""Whole objects (markers, the lock, bundles, report files) under one URL: in memory, a folder, or an object store.

Every write is atomic. `create` is conditional: it succeeds for exactly one of several writers.
"""

from urllib.parse import unquote, urlparse

from ..core.credentials import refuse_secret
from .local_objects import LocalObjects
from .memory_objects import SCHEME, MemoryObjects
from .object_protocol import Objects
from .remote_objects import RemoteObjects


def open_objects(url: str) -> Objects:
    """The objects under a path, a file:// URL, a store in memory, or any URL that obstore supports (s3://, gs://, az://)."""
    if url.startswith(f"{SCHEME}://"):
        return MemoryObjects(url)
    refuse_secret(url)
    parsed = urlparse(url)
    if parsed.scheme in {"", "file"} or len(parsed.scheme) == 1:
        return LocalObjects(unquote(parsed.path) if parsed.scheme == "file" else url)
    return RemoteObjects(url)
