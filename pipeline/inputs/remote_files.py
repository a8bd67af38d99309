"""Files behind URLs through obstore: found by listing, told apart by their tags, read by ranges of bytes.

Every answer says of which state of the object it is, so rows of two states never meet in one read.
"""

import io
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

from fsspec.utils import glob_translate

from pipeline.core.errors import ConfigError, InputChanged, InputError, LleError
from pipeline.inputs.file_stamp import Stamp
from pipeline.storage.objects import open_remote
from pipeline.storage.storage_errors import explain_remote

MAGIC = re.compile(r"[*?\[]")
PIECE_BYTES = 1 << 24  # of one request, since the client gives up on an answer that takes longer than 30 seconds
REQUESTS = 4  # at once, for the pieces of one read
LISTED = 5
_FOLDER = "is a folder; name the files in it, for instance"
NOT_IN_URLS = {ord(character): f"%{ord(character):02X}" for character in "%?#"}


def find_objects(url: str, key: str) -> list[Stamp]:
    """The object at a URL, or those whose names match the pattern there, sorted. key: the config key, for messages.

    Raises InputError where there is none, no such bucket, or no right to see it.
    """
    if find_spec("obstore") is None:
        raise InputError(f"input.{key}: reading {url} needs the extra s3: pip install 'lle-pipeline[s3]'")
    place, name = _split(url)
    asked = f"input.{key}: {url}"
    if not name or name.endswith("/"):
        raise InputError(f"{asked} {_FOLDER} '{url.rstrip('/')}/*'")
    with _asking(asked):
        if not MAGIC.search(name):
            return [_stamp(place, _head(place, name, asked))]
        if place.startswith("http"):
            raise InputError(f"{asked} is a pattern, but a web server lists nothing; name one file, or use the object "
                             f"store's own URL (s3://, gs://, az://)")  # fmt: skip
        found = _matching(place, name, asked)
        if not found:
            raise InputError(f"{asked}: no object matches the pattern; {_below(place, _folder(name))}")
    return [_stamp(place, entry) for entry in sorted(found, key=lambda entry: str(entry["path"]))]


def read_range(stamp: Stamp, start: int, target: memoryview) -> None:
    """Fill `target` with the object's bytes from `start` on.

    Raises InputError where the object is gone, InputChanged where it is no longer the one of the stamp.
    """
    starts = range(0, len(target), PIECE_BYTES)

    def fetch(first: int) -> None:
        piece = target[first : first + PIECE_BYTES]
        piece[:] = _ask(stamp, start + first, len(piece))

    if len(starts) == 1:
        return fetch(0)
    with ThreadPoolExecutor(REQUESTS) as pool:
        list(pool.map(fetch, starts))


class RangeFile(io.RawIOBase):
    """An object as a file to read: each read is one request for just its bytes (several at once, where they are many).

    Unlike obstore's own reader it keeps what it has when the position moves, once there is a buffer around it.
    """

    def __init__(self, stamp: Stamp) -> None:
        super().__init__()
        self._stamp, self._position = stamp, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._stamp.size}[whence]
        if base + offset < 0:
            raise OSError(f"byte {base + offset} is before the start")  # as other files say it; zipfile relies on it
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._stamp.size - self._position))
        if count:
            read_range(self._stamp, self._position, view[:count])
        self._position += count
        return count


def _split(url: str) -> tuple[str, str]:
    """What a client is made for (the bucket; of a web server the folder), and the name below it."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() in {"http", "https"}:
        place, _, name = url.rpartition("/")
        return place, unquote(name)
    bucket, _, name = rest.partition("/")
    return f"{scheme}://{bucket}", unquote(name)


def _folder(name: str) -> str:
    """The part of a name or pattern that holds no wildcard, up to its last slash."""
    literal = MAGIC.split(name, maxsplit=1)[0]
    return literal.rpartition("/")[0]


def _client(place: str) -> Any:
    # Whoever sets missing credentials in a running session gets another client.
    return _client_of(place, hash(tuple(sorted(os.environ.items()))))


@lru_cache(maxsize=64)
def _client_of(place: str, environment: int) -> Any:
    try:
        return open_remote(place)
    except ConfigError as error:
        raise InputError(f"{error}; expected a URL such as s3://bucket/folder/points.parquet") from None


def _stamp(place: str, entry: Any) -> Stamp:
    # The quotes belong to a tag, and not every service keeps them in its lists.
    tag = entry["e_tag"] or ""
    tag = tag if not tag or tag.endswith('"') else f'"{tag}"'
    time = max(0, int(entry["last_modified"].timestamp() * 1000)) * 10**6
    return Stamp(f"{place}/{entry['path'].translate(NOT_IN_URLS)}", int(entry["size"]), time, tag)


def _head(place: str, name: str, asked: str) -> Any:
    import obstore  # noqa: PLC0415 (an optional extra)

    try:
        return obstore.head(_client(place), name)
    except FileNotFoundError:
        if not place.startswith("http") and _list(place, name, deep=False):
            raise InputError(f"{asked} {_FOLDER} '{asked.partition(': ')[2]}/*'") from None
        raise InputError(f"{asked}: there is no such object; {_below(place, name.rpartition('/')[0])}") from None


def _matching(place: str, pattern: str, asked: str) -> list[Any]:
    """The listed objects that a pattern means: `*`, `?` and `[...]` within a name, `**` over any folders."""
    try:
        matches = re.compile(glob_translate(pattern)).match
    except ValueError as error:
        raise InputError(f"{asked}: {error}; write it as /**/") from None
    folder = _folder(pattern)
    rest = pattern[len(folder) :].lstrip("/")
    entries = _list(place, folder, deep="/" in rest or "**" in rest)
    if itself := [entry for entry in entries if entry["path"] == pattern]:
        return itself
    hidden = re.compile(r"(^|/)\.")  # as on a disk, names with a dot in front are matched by such patterns only
    wanted = hidden.search(pattern)
    return [entry for entry in entries
            if matches(entry["path"]) and (wanted or not hidden.search(entry["path"][len(folder) :]))]  # fmt: skip


def _list(place: str, folder: str, deep: bool) -> list[Any]:
    import obstore  # noqa: PLC0415 (an optional extra)

    if deep:
        return [entry for page in obstore.list(_client(place), prefix=folder or None) for entry in page]
    return list(obstore.list_with_delimiter(_client(place), prefix=folder or None)["objects"])


def _below(place: str, folder: str) -> str:
    """What there is instead, for a message."""
    if place.startswith("http"):
        return "check the URL"
    names = [entry["path"] for entry in _list(place, folder, deep=False)]
    where = f"{place}/{folder}" if folder else place
    if not names:
        return f"there are no files in {where}: check the URL"
    listed = ", ".join(name.rpartition("/")[2] for name in names[:LISTED]) + (", ..." if len(names) > LISTED else "")
    return f"{where} holds {listed}: check the URL"


def _ask(stamp: Stamp, start: int, count: int) -> Any:
    import obstore  # noqa: PLC0415 (an optional extra)

    place, name = _split(stamp.path)
    with _asking(stamp.path):
        try:
            answer = obstore.get(_client(place), name, options={"range": (start, start + count)})
        except FileNotFoundError:
            raise InputError(f"{stamp.path}: the object went away while it was read; restore it, and run the same "
                             f"command again") from None  # fmt: skip
        except (NotImplementedError, obstore.exceptions.NotSupportedError):
            raise InputError(f"{stamp.path}: this server answers no requests for a part of a file; copy the file to a "
                             f"disk, or to an object store") from None  # fmt: skip
        now = _stamp(place, {**answer.meta, "path": name})
        same_time = now.mtime_ns // 10**9 == stamp.mtime_ns // 10**9  # headers tell seconds only
        if now.size != stamp.size or (now.tag != stamp.tag and not same_time):
            raise InputChanged(f"{stamp.path}: the object was replaced while it was read; run the same command again")
        data = memoryview(answer.bytes())
    if len(data) != count:
        raise LleError(f"{stamp.path}: expected {count} bytes from byte {start} on, found {len(data)}; try again")
    return data


@contextmanager
def _asking(where: str) -> Iterator[None]:
    """Turns what an object store refuses into InputError, and what may pass into an error worth a retry."""
    try:
        yield
    except (LleError, MemoryError):
        raise
    except Exception as error:
        said = explain_remote(error)
        if said is None:
            raise
        raise said.of_input(where) from None
