"""Versions of a job under one root: one store per version, and one pointer to the published version.

`<root>/versions/<id>/` holds the store of one run. `<root>/published.json` names the published version and the earlier
published ones. This pointer is replaced in one write, after everything it points to, so no reader sees half a run.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from ..core.errors import ConfigError, DamagedStore, LleError, NoEmbedding, OlderVersionRead, StoreError
from .lock import LOCK, Holder, RunLock, holder_alive
from .run_group import POINTER, VERSIONS, is_id
from .store import Store, read_elsewhere

READERS = "_run/readers"
REPORT = "report"
RETIRED = "_run/retired.json"
ID_TIME = "%Y%m%dT%H%M%SZ"

T = TypeVar("T")


@dataclass(frozen=True)
class Pointer:
    """The published version and when it was published, and the versions published before (with it, the newest first).

    `fingerprint` is that of its run, `content` the digest of its input ("": unknown), `rows` the rows of the input.
    """

    version: str
    when: str
    fingerprint: str
    history: tuple[str, ...]
    content: str = ""
    rows: int | None = None


class Versions:
    """The versions under a root. Only the holder of the root's lock changes them."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.objects, self.url = self.store.objects, self.store.url.rstrip("/")

    def check_place(self) -> None:
        """Raises ConfigError if the root holds other files or the store of a run."""
        if not self.store.has_versions() and self.store.may_erase():
            raise ConfigError(
                f"{self.url}: holds the store of one run, but output.keep needs a root of versions; choose another "
                f"output.store, move the present store, or remove output.keep"
            )

    def pointer(self) -> Pointer | None:
        """The record of the published version; None before the first publication.

        Raises DamagedStore if it is damaged.
        """
        if not self.objects.exists(POINTER):
            return None
        record = self.store.read_record(POINTER, Pointer)
        if record is None or not record.history:
            raise DamagedStore(
                f"{self.url}/{POINTER}: is damaged or was not written by a run. The next `lle run` writes it again. To "
                f"publish one of the versions without a run, use `lle publish`: `lle versions` lists them"
            )
        return record

    def delete_damaged_pointer(self) -> bool:
        """Delete the record of the published version if it is damaged, and return whether it was."""
        try:
            self.pointer()
        except DamagedStore:
            self.objects.delete(POINTER)
            return True
        return False

    def history(self) -> tuple[str, ...]:
        """The published versions, the newest first; empty before the first publication."""
        return () if (pointer := self.pointer()) is None else pointer.history

    def ids(self) -> list[str]:
        """All versions, published or not, the oldest first."""
        return list(filter(is_id, self.objects.folders(VERSIONS)))

    def open(self, version: str) -> Store:
        """The store of a version. Raises StoreError if `version` is not an id, for instance a path out of the root."""
        if not is_id(version):
            raise StoreError(f"{self.url}/{POINTER}: {version!r} is not the id of a version; it is damaged, delete it")
        return Store(f"{self.url}/{VERSIONS}/{version}")

    def published(self) -> Store:
        """The published version. Raises ConfigError if there is none yet."""
        pointer = self.pointer()
        if pointer is None:
            raise ConfigError(f"{self.url}: no version has been published yet (`lle status` shows the progress)")
        return self.open(pointer.version)

    def unpublished(self) -> list[str]:
        """Unfinished versions, the newest first."""
        history = self.history()
        return [
            version
            for version in reversed(self.ids())
            if version not in history and not self.open(version).objects.exists(RETIRED)
        ]

    def new_id(self) -> str:
        """An id: the UTC time, or one second after the latest version if that is later, and four hex digits."""
        now = datetime.now(UTC).replace(microsecond=0)
        if ids := self.ids():
            with contextlib.suppress(ValueError):
                newest = datetime.strptime(ids[-1].partition("-")[0], ID_TIME).replace(tzinfo=UTC)
                now = max(now, newest + timedelta(seconds=1))
        return f"{now.strftime(ID_TIME)}-{secrets.token_hex(2)}"

    def publish(self, version: str, fingerprint: str, content: str, rows: int | None, others: Sequence[str]) -> None:
        """Publish a finished version. `others` (newest first) become its history if there is no pointer yet."""
        earlier = [published for published in self.history() or others if published != version]
        when = datetime.now(UTC).isoformat(timespec="seconds")
        self.point_to(Pointer(version, when, fingerprint, (version, *earlier), content, rows))
        show_report(self.url, self.open(version))

    def point_to(self, pointer: Pointer) -> None:
        self.store.put_record(POINTER, pointer)

    def prune(self, keep: int) -> tuple[list[str], list[str]]:
        """Delete all but the newest `keep` published versions, and the unfinished ones.

        Returns the ids of the deleted versions, and the errors of those that could not be deleted.
        """
        if (pointer := self.pointer()) is None:
            return [], []
        kept_versions = pointer.history[:keep]
        if kept_versions != pointer.history:
            self.point_to(replace(pointer, history=kept_versions))
        return self.delete_all_but(kept_versions)

    def delete_all_but(self, kept_versions: Sequence[str]) -> tuple[list[str], list[str]]:
        """Delete the other versions, except those in use; returns the same as `prune`.

        Each version is first marked as retired; a reader registers itself and then checks for that mark, so one of the
        two always sees the other.
        """
        deleted, errors = list[str](), list[str]()
        for version in self.ids():
            try:
                if version not in kept_versions and self.drop(version):
                    deleted.append(version)
            except StoreError as error:  # go on: otherwise one version could let the disk fill up
                errors.append(str(error))
        return deleted, errors

    def drop(self, version: str) -> bool:
        """Delete a version unless it is in use; the mark is deleted last."""
        store = self.open(version)
        store.put_json(RETIRED, {"when": time.time()})
        names = [LOCK, *store.objects.names(READERS)]
        holders = [(name, holder) for name in names if (holder := store.read_record(name, Holder))]
        if any(holder_alive(store, name, holder) for name, holder in holders):
            return False
        store.erase()
        store.objects.delete("")  # `erase` keeps the folder _run, which holds the mark
        return True


def show_report(url: str, store: Store) -> None:
    """Copy the report of the published version beside the pointer, as an address that does not change.

    Does nothing if the URL is the store itself, or if the version is not the published one.
    """
    root = Versions(url)
    if root.url == store.url or not root.store.has_versions() or root.published().url != store.url:
        return
    root.objects.delete(REPORT)
    root.objects.copy(store.objects.names(REPORT), store.objects)


def published_url(url: str) -> str:
    """The store to read at a path or URL: the published version of a root, else the URL itself.

    >>> import zarr
    >>> run = zarr.open_group(published_url("runs/rows.zarr"), mode="r")  # doctest: +SKIP
    """
    root = Versions(url)
    return root.published().url if root.store.has_versions() else root.store.url


def other_versions(url: str, store: Store) -> list[Store]:
    """The other versions under a root, which may share files with this one; empty for the store of one run."""
    root = Versions(url)
    ids = root.ids() if root.store.has_versions() else []
    others = [other for other in map(root.open, ids) if other.url != store.url]
    return [other for other in others if other.objects.exists("zarr.json")]


def unreadable(store: Store) -> StoreError:
    """The error for a published version that no longer exists."""
    return DamagedStore(
        f"{store.url}: is published, but cannot be read (no zarr.json). Run the job again to compute it"
    )


@contextlib.contextmanager
def reading(url: str) -> Iterator[Store]:
    """The store to read at a URL; its published version is not pruned meanwhile.

    A reader without write access cannot register itself; then the version is safe only for the next `output.keep`
    publications. Raises ConfigError if there is no run, StoreError if the published version no longer exists.
    """
    root = Versions(url)
    if not root.store.has_versions():
        root.store.require_run()
        with read_elsewhere(root.store):
            yield root.store
        return
    store, previous_url = root.published(), ""
    while store.url != previous_url:
        with contextlib.ExitStack() as registration:
            with contextlib.suppress(StoreError):
                registration.enter_context(RunLock(store, f"{READERS}/{secrets.token_hex(8)}.json"))
            if store.objects.exists("zarr.json") and not store.objects.exists(RETIRED):
                with read_elsewhere(store):
                    yield store
                return
        time.sleep(0.1)  # another version is being published
        store, previous_url = root.published(), store.url
    raise unreadable(store)


def read_whole(url: str, read: Callable[[Store], T]) -> tuple[T, str]:
    """The result of `read` for the store at a URL, and a warning, empty if the published version is not damaged.

    Otherwise the newest older version that can be read is used. Raises the error of the published version if there is
    none.
    """
    try:
        with reading(url) as store:
            return read(store), ""
    except (DamagedStore, NoEmbedding) as error:
        root, damage = Versions(url), error
        older = root.history()[1:] if root.store.has_versions() else ()
    for version in older:
        with contextlib.suppress(LleError), reading(root.open(version).url) as store:
            return read(store), (
                f"{url}: the published version is damaged ({damage.args[0]}). The older version {version} was read "
                f"instead. Run the job again to publish an undamaged version"
            )
    raise damage


def result_of_whole(url: str, read: Callable[[Store], dict[str, object]]) -> dict[str, object]:
    """As `read_whole`. Raises OlderVersionRead with the result of an older version."""
    result, warning = read_whole(url, read)
    if warning:
        raise OlderVersionRead(warning, result)
    return result
