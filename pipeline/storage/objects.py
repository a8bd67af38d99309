"""Whole objects (markers, the lock, bundles, report files) under one URL: local folders, or object stores by obstore.

Every write is atomic. `create` is conditional: it succeeds for exactly one of several writers.
"""

import contextlib
import errno
import math
import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

from ..core.credentials import find_secret, redact, without_user
from ..core.errors import ConfigError, StoreError
from .memory_objects import MemoryObjects, is_in_memory
from .object_protocol import Objects
from .retries import CLIENT_RETRY, retried
from .storage_errors import persist, storage_errors

NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
COPY_THREADS = 16
SETTLE_SECONDS = 1.0  # wait after `create`: some services let every writer succeed that saw no object at its start

T = TypeVar("T")


def open_objects(url: str) -> Objects:
    """The objects under a path, a file:// URL, a store in memory, or any URL that obstore supports (s3://, gs://, az://)."""
    if is_in_memory(url):
        return MemoryObjects(url)
    _refuse_secrets(url)
    parsed = urlparse(url)
    if parsed.scheme in {"", "file"} or len(parsed.scheme) == 1:
        return LocalObjects(unquote(parsed.path) if parsed.scheme == "file" else url)
    return RemoteObjects(url)


def open_remote(url: str) -> Any:
    """obstore's store for a URL. The client reads endpoint and credentials from the environment. Raises ConfigError."""
    _refuse_secrets(url)
    from obstore.store import from_url  # noqa: PLC0415 (an optional extra)

    options: Any = {"client_options": {"allow_http": True}} if url.startswith("http://") else {}
    try:
        return from_url(url, retry_config=CLIENT_RETRY, **options)
    except Exception as error:
        message = redact(str(error).split("\n")[0])
        raise ConfigError(f"{url}: not a storage URL that can be opened: {message}") from None


def _refuse_secrets(url: str) -> None:
    if kind := find_secret(url):
        raise ConfigError(
            f"{without_user(url)}: the URL holds {kind}. Credentials come from the environment or the identity of the "
            f"machine; remove it from the URL, and replace it if others have seen it"
        )


class LocalObjects(Objects):
    """Files below a folder. A write creates a temporary file and renames it."""

    def __init__(self, root: str) -> None:
        self.root = Path(root).expanduser().absolute()
        self.url = str(self.root)  # absolute: workers may have another working directory

    def _path(self, name: str) -> Path:
        """The path of an object. Raises StoreError for a name outside the root: names also come from stored records."""
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise StoreError(
                f"{self.url}: a record holds the name {name!r}, which is outside the store; nothing was read or "
                "deleted there. Use another store: this one is damaged or was tampered with"
            )
        return self.root / name

    def put(self, name: str, data: bytes) -> None:
        target = self._path(name)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")

        def write() -> None:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(data)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)

        persist(write, str(target))

    def create(self, name: str, data: bytes) -> bool:
        target = self._path(name)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")

        def write() -> None:  # repeated if another process deletes the empty folder meanwhile
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)

        persist(write, str(target))
        with storage_errors(str(target)):
            try:
                os.link(temporary, target)  # fails if the name exists; readers never see half-written content
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
        return True

    def get(self, name: str) -> bytes | None:
        with storage_errors(str(self._path(name))), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._path(name).read_bytes()
        return None

    def names(self, prefix: str) -> list[str]:
        base = self._path(prefix)
        return sorted(path.relative_to(self.root).as_posix() for path in _files(base) if path.suffix != ".partial")

    def folders(self, prefix: str) -> list[str]:
        with storage_errors(str(self._path(prefix))), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in self._path(prefix).iterdir() if path.is_dir())
        return []

    def copy(self, names: Sequence[str], source: Objects) -> None:
        for name in names:
            target = self._path(name)
            persist(partial(_link, Path(source.place()) / name, target), str(target))

    def exists(self, name: str) -> bool:
        with storage_errors(str(self._path(name))):
            return self._path(name).is_file()

    def size(self, name: str) -> int:
        with contextlib.suppress(OSError):
            return self._path(name).stat().st_size
        return 0

    def delete(self, name: str) -> None:
        target = self._path(name)
        with storage_errors(str(target)):
            if target.is_dir():
                shutil.rmtree(target, ignore_errors=False)
            else:
                target.unlink(missing_ok=True)

    def delete_empty_folders(self) -> None:
        folders = [path for path in self.root.rglob("*") if path.is_dir()]
        for folder in sorted([self.root, *folders], reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def place(self) -> Any:
        return str(self.root)

    def age(self, name: str) -> float:
        """Compares two times of the file system, so clocks of different hosts are never compared."""
        probe = f"_run/clock-{uuid.uuid4().hex}.json"
        self.put(probe, b"{}")
        try:
            with contextlib.suppress(FileNotFoundError):
                return (self.root / probe).stat().st_mtime - self._path(name).stat().st_mtime
            return math.inf
        finally:
            self.delete(probe)

    def delete_partial_files(self) -> int:
        partial_files = [path for path in _files(self.root) if path.suffix == ".partial"]
        for path in partial_files:
            path.unlink(missing_ok=True)
        return len(partial_files)


def _files(folder: Path) -> list[Path]:
    """All files below a folder; none if it does not exist. Raises StoreError that names a folder it cannot read."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            with storage_errors(str(error.filename)):
                raise error

    return [Path(parent, name) for parent, _, names in os.walk(folder, onerror=refuse) for name in names]


def _link(source: Path, target: Path) -> None:
    """Hard-link a file; copy it if the file system has no links or the file has too many."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        try:
            os.link(source, temporary)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            shutil.copyfile(source, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


class RemoteObjects(Objects):
    """Objects below a URL, accessed by obstore."""

    def __init__(self, url: str) -> None:
        try:
            import obstore  # noqa: PLC0415 (an optional extra)
        except ImportError:
            raise ConfigError(f"{url}: needs the extra s3: run pip install '.[s3]' in the source folder") from None
        self.url, self._obs = url.rstrip("/"), obstore
        self._missing = (obstore.exceptions.NotFoundError, FileNotFoundError)
        self._store = open_remote(self.url)

    def _request(self, name: str, request: Callable[[], T]) -> T:
        """The result of a request, repeated after temporary failures. Raises StoreError, FileNotFoundError."""
        with storage_errors(f"{self.url}/{name}"):
            return retried(request)

    def put(self, name: str, data: bytes) -> None:
        self._request(name, lambda: self._obs.put(self._store, name, data))

    def put_file(self, name: str, path: Path) -> None:
        """Upload a file, in parts if it is large; the object appears when the upload is complete."""
        self._request(name, lambda: self._obs.put(self._store, name, path))

    def create(self, name: str, data: bytes) -> bool:
        """The data must be unique to its writer: it is read back, because conditional writes differ between services.

        Some services ignore the condition, some refuse it, and some (OpenStack Swift) check it before a delayed write,
        so that several writers succeed at once. The last writer has created the object; the others get False.
        """
        if self.exists(name):
            return False

        def put() -> None:
            try:
                self._obs.put(self._store, name, data, mode="create")
            except self._obs.exceptions.AlreadyExistsError:
                pass  # written by another writer, or by this one: the client retried after a lost response
            except (NotImplementedError, self._obs.exceptions.NotSupportedError):
                self._obs.put(self._store, name, data)

        self._request(name, put)
        time.sleep(SETTLE_SECONDS)
        return self.get(name) == data

    def get(self, name: str) -> bytes | None:
        def get() -> bytes | None:
            with contextlib.suppress(*self._missing):
                return bytes(self._obs.get(self._store, name).bytes())
            return None

        return self._request(name, get)

    def names(self, prefix: str) -> list[str]:
        def list_all() -> list[str]:
            pages = self._obs.list(self._store, prefix=prefix)
            return sorted(entry["path"] for page in pages for entry in page)

        return self._request(prefix, list_all)

    def folders(self, prefix: str) -> list[str]:
        listing = self._request(prefix, lambda: self._obs.list_with_delimiter(self._store, prefix=prefix))
        prefixes = listing["common_prefixes"]
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in prefixes)

    def copy(self, names: Sequence[str], source: Objects) -> None:
        """Copied inside the service, by a client whose root contains both stores."""
        target_parts, source_parts = self.url.rstrip("/").split("/"), source.url.rstrip("/").split("/")
        shared = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(target_parts, source_parts, strict=False))
        )
        common_root = RemoteObjects("/".join(target_parts[:shared]))

        def copy_one(name: str) -> None:
            origin, target = "/".join([*source_parts[shared:], name]), "/".join([*target_parts[shared:], name])
            self._request(name, lambda: self._obs.copy(common_root._store, origin, target))

        with ThreadPoolExecutor(COPY_THREADS) as pool:
            list(pool.map(copy_one, names))

    def exists(self, name: str) -> bool:
        return self._head(name) is not None

    def size(self, name: str) -> int:
        head = self._head(name)
        return 0 if head is None else int(head["size"])

    def _head(self, name: str) -> Any:
        def head() -> Any:
            with contextlib.suppress(*self._missing):
                return self._obs.head(self._store, name)
            return None

        return self._request(name, head)

    def delete(self, name: str) -> None:
        existing = self.names(name) or ([name] if self.exists(name) else [])
        if existing:
            self._request(name, lambda: self._obs.delete(self._store, existing))

    def place(self) -> Any:
        return self._store

    def age(self, name: str) -> float:
        """Compares two times of the service."""
        probe = f"_run/clock-{uuid.uuid4().hex}.json"
        self.put(probe, b"{}")
        try:
            probe_head, head = self._head(probe), self._head(name)
            if probe_head is None or head is None:
                return math.inf
            return float((probe_head["last_modified"] - head["last_modified"]).total_seconds())
        finally:
            self.delete(probe)
