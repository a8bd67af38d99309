"""Remote files by obstore: found by listing, identified by their tags, read by byte ranges.

Every response gives the state of the object, so one read never mixes rows of two states.
"""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

from fsspec.spec import AbstractBufferedFile
from fsspec.utils import glob_translate

from ..core.errors import ConfigError, InputChanged, InputError, LleError
from ..storage.remote_objects import open_remote
from ..storage.retries import retried
from .base import Stamp
from .damage import reading

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

MAGIC = re.compile(r"[*?\[]")
PIECE_BYTES = 1 << 24  # bytes per request: the client's timeout is 30 seconds
REQUESTS = 4  # at once, for the pieces of one read
_FOLDER = "is a folder; name the files in it, for instance"
NOT_IN_URLS = {ord(character): f"%{ord(character):02X}" for character in "%?#"}


def find_objects(url: str, key: str) -> list[Stamp]:
    """The object at a URL, or the objects that match its pattern, sorted. key: the config key, for messages.

    Raises InputError if there is none, or if the bucket is missing or not accessible.
    """
    root, name = _split(url)
    where = f"input.{key}: {url}"
    try:
        _client(root)
    except ConfigError as error:  # a missing extra, or a password in the URL: the message has no URL
        raise InputError(f"input.{key}: {error}") from None
    if not name or name.endswith("/"):
        raise InputError(f"{where} {_FOLDER} '{url.rstrip('/')}/*'")
    with reading(where):
        if not MAGIC.search(name):
            return [_stamp(root, _head(root, name, where))]
        if root.startswith("http"):
            raise InputError(
                f"{where} is a pattern, but web servers cannot list files; name one file, or use the "
                f"object store's own URL (s3://, gs://, az://)"
            )
        entries = _matching(root, name, where)
        if not entries:
            raise InputError(f"{where}: no object matches the pattern; check the URL")
    return [_stamp(root, entry) for entry in sorted(entries, key=lambda entry: str(entry["path"]))]


def read_range(stamp: Stamp, start: int, target: memoryview) -> None:
    """Fill `target` with the object's bytes from `start` on.

    Raises InputError if the object no longer exists, InputChanged if it no longer matches the stamp.
    """
    starts = range(0, len(target), PIECE_BYTES)

    def fetch(first: int) -> None:
        piece = target[first : first + PIECE_BYTES]
        piece[:] = _request(stamp, start + first, len(piece))

    if len(starts) == 1:
        return fetch(0)
    with ThreadPoolExecutor(REQUESTS) as pool:
        list(pool.map(fetch, starts))


class RangeFile(AbstractBufferedFile):  # type: ignore[misc]
    """An object as a readable file: each read requests its bytes, and at least `buffer_bytes`, which are kept."""

    def __init__(self, stamp: Stamp, buffer_bytes: int) -> None:
        kind = "readahead" if buffer_bytes else "none"
        super().__init__(None, stamp.path, block_size=buffer_bytes, cache_type=kind, size=stamp.size)
        self._stamp = stamp

    def seek(self, loc: int, whence: int = 0) -> int:
        try:
            return int(super().seek(loc, whence))
        except ValueError as error:
            raise OSError(str(error)) from error  # the error of other files; zipfile relies on it

    def _fetch_range(self, start: int, end: int) -> bytes:
        data = bytearray(min(end, self.size) - start)
        read_range(self._stamp, start, memoryview(data))
        return bytes(data)


def _split(url: str) -> tuple[str, str]:
    """The root of a client (the bucket; for a web server the folder), and the name below it."""
    scheme, _, location = url.partition("://")
    if scheme.lower() in {"http", "https"}:
        root, _, name = url.rpartition("/")
        return root, unquote(name)
    bucket, _, name = location.partition("/")
    return f"{scheme}://{bucket}", unquote(name)


def _client(root: str) -> "ObjectStore":
    # The key includes the environment: credentials that are set later need a new client.
    return _client_of(root, hash(tuple(sorted(os.environ.items()))))


@lru_cache(maxsize=64)
def _client_of(root: str, environment: int) -> "ObjectStore":
    return open_remote(root)


def _stamp(root: str, entry: "ObjectMeta") -> Stamp:
    # Quotes belong to an ETag, but some services omit them in listings.
    tag = entry["e_tag"] or ""
    tag = tag if not tag or tag.endswith('"') else f'"{tag}"'
    time = max(0, int(entry["last_modified"].timestamp() * 1000)) * 10**6
    return Stamp(f"{root}/{entry['path'].translate(NOT_IN_URLS)}", int(entry["size"]), time, tag)


def _head(root: str, name: str, where: str) -> "ObjectMeta":
    import obstore  # an optional extra

    try:
        return retried(lambda: obstore.head(_client(root), name))
    except FileNotFoundError:
        if not root.startswith("http") and _list(root, name, deep=False):
            raise InputError(f"{where} {_FOLDER} '{where.partition(': ')[2]}/*'") from None
        raise InputError(f"{where}: there is no such object; check the URL") from None


def _matching(root: str, pattern: str, where: str) -> "list[ObjectMeta]":
    """The listed objects that match a pattern: `*`, `?` and `[...]` within a name, `**` over any folders."""
    try:
        matches = re.compile(glob_translate(pattern)).match
    except ValueError as error:
        raise InputError(f"{where}: {error}; write it as /**/") from None
    folder = MAGIC.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    pattern_in_folder = pattern[len(folder) :].lstrip("/")
    entries = _list(root, folder, deep="/" in pattern_in_folder or "**" in pattern_in_folder)
    if exact := [entry for entry in entries if entry["path"] == pattern]:
        return exact
    hidden = re.compile(r"(^|/)\.")  # as on disk, names that begin with a dot need a pattern with that dot
    show_hidden = hidden.search(pattern)
    return [
        entry
        for entry in entries
        if matches(entry["path"]) and (show_hidden or not hidden.search(entry["path"][len(folder) :]))
    ]


def _list(root: str, folder: str, deep: bool) -> "list[ObjectMeta]":
    import obstore  # an optional extra

    client, prefix = _client(root), folder or None
    if deep:
        return retried(lambda: [entry for page in obstore.list(client, prefix=prefix) for entry in page])
    return retried(lambda: list(obstore.list_with_delimiter(client, prefix=prefix)["objects"]))


def _request(stamp: Stamp, start: int, count: int) -> memoryview:
    import obstore  # an optional extra

    root, name = _split(stamp.path)

    def get() -> "tuple[ObjectMeta, memoryview]":
        """Metadata of the object and the bytes, of one state."""
        response = obstore.get(_client(root), name, options={"range": (start, start + count)})
        return response.meta, memoryview(response.bytes())

    with reading(stamp.path):
        try:
            meta, data = retried(get)
        except FileNotFoundError:
            raise InputError(
                f"{stamp.path}: the object was deleted while it was read; restore it, and run the same command again"
            ) from None
        except (NotImplementedError, obstore.exceptions.NotSupportedError):
            raise InputError(
                f"{stamp.path}: this server does not support reading a part of a file; copy the file to "
                f"a disk, or to an object store"
            ) from None
        current = _stamp(root, {**meta, "path": name})
        same_time = current.mtime_ns // 10**9 == stamp.mtime_ns // 10**9  # HTTP headers give whole seconds
        if current.size != stamp.size or (current.tag != stamp.tag and not same_time):
            raise InputChanged(f"{stamp.path}: the object was replaced while it was read; run the same command again")
    if len(data) != count:
        raise LleError(f"{stamp.path}: expected {count} bytes from byte {start} on, found {len(data)}; try again")
    return data
