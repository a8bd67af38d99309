"""Objects of an object store (s3://, gs://, az://, ...), accessed by obstore."""

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..core.credentials import redact, refuse_secret
from ..core.errors import ConfigError
from .object_protocol import Head, Objects
from .retries import CLIENT_RETRY, retried
from .storage_errors import storage_errors

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

COPY_THREADS = 16
SETTLE_SECONDS = 1.0  # wait after `create`: some services let every writer succeed that saw no object at its start

T = TypeVar("T")


def open_remote(url: str) -> "ObjectStore":
    """obstore's store for a URL. The client reads endpoint and credentials from the environment. Raises ConfigError."""
    refuse_secret(url)
    try:
        from obstore.store import from_url  # an optional extra
    except ImportError:
        raise ConfigError(f"{url}: needs the extra s3: run pip install '.[s3]' in the source folder") from None

    options: ClientConfig | None = {"allow_http": True} if url.startswith("http://") else None
    try:
        return from_url(url, retry_config=CLIENT_RETRY, client_options=options)
    except Exception as error:
        message = redact(str(error).split("\n")[0])
        raise ConfigError(
            f"{url}: not a storage URL that can be opened: {message}; expected one such as s3://bucket/folder"
        ) from None


class RemoteObjects(Objects):
    n_together = 16

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._store = open_remote(self.url)
        import obstore  # an optional extra

        self._obs, self._missing = obstore, (obstore.exceptions.NotFoundError, FileNotFoundError)

    def _request(self, name: str, request: Callable[[], T]) -> T:
        """The result of a request, repeated after temporary failures. Raises StoreError, FileNotFoundError."""
        with storage_errors(f"{self.url}/{name}"):
            return retried(request)

    def put(self, name: str, data: bytes | Path) -> None:
        """Write an object, or upload a file, in parts if it is large; the object appears when it is complete."""
        self._request(name, lambda: self._obs.put(self._store, name, data))

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

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        def get() -> bytes | None:
            try:
                return bytes(self._obs.get_range(self._store, name, start=start, length=length))
            except self._missing:
                return None
            except Exception:  # services refuse a range beyond the end, each with another error
                if self._obs.head(self._store, name)["size"] >= start + length:
                    raise
                return b""

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

    def head(self, name: str) -> Head | None:
        def request() -> Head | None:
            with contextlib.suppress(*self._missing):
                meta = self._obs.head(self._store, name)
                return Head(int(meta["size"]), meta["last_modified"].timestamp())
            return None

        return self._request(name, request)

    def delete(self, name: str) -> None:
        existing = self.names(name) or ([name] if self.exists(name) else [])
        if existing:
            self._request(name, lambda: self._obs.delete(self._store, existing))

    def delete_objects(self, names: Sequence[str]) -> None:
        """Without the requests of `delete` that look for a folder, and many objects with one request on S3."""

        def delete() -> None:
            try:
                self._obs.delete(self._store, list(names))
            except self._missing:  # not every service accepts names that do not exist
                for name in names:
                    with contextlib.suppress(*self._missing):
                        self._obs.delete(self._store, name)

        if names:
            self._request(names[0], delete)

    def place(self) -> "ObjectStore":
        return self._store
