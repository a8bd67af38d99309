"""Versions of a job under one root: each a store of its own, and one pointer that says which of them counts.

`<root>/versions/<id>/` holds the store of one run, `<root>/published.json` names the published one and those published
before it. The pointer is one object, replaced as a whole after everything it points to, so no reader sees half a run.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.core.errors import ConfigError, StoreError
from pipeline.storage.locate import POINTER, VERSIONS, is_id
from pipeline.storage.lock import LOCK, RunLock, holder_alive
from pipeline.storage.store import Store

READERS = "_run/readers"
RETIRED = "_run/retired.json"
ID_TIME = "%Y%m%dT%H%M%SZ"

Pointer = dict[str, Any]


class Versions:
    """What lies under a root. Only the holder of the root's lock changes it."""

    def __init__(self, url: str) -> None:
        self.store = Store(url)
        self.objects, self.url = self.store.objects, self.store.url.rstrip("/")

    def check_place(self) -> None:
        """Raises ConfigError where something else lies at the root: other files, or the store of a run."""
        if not self.store.has_versions() and self.store.may_erase():
            raise ConfigError(
                f"{self.url}: holds the store of one run, but output.keep asks for a root of versions; choose another "
                f"output.store, move what is there, or remove output.keep"
            )

    def pointer(self) -> Pointer | None:
        """What is published: version, when, fingerprint, content, rows, history (newest first); None before the first.

        Raises StoreError where it cannot be read.
        """
        data = self.objects.get(POINTER)
        if data is None:
            return None
        try:
            found: Pointer = json.loads(data)
            if not ({"version", "fingerprint", "history"} <= dict(found).keys() and list(found["history"])):
                raise ValueError
        except (ValueError, TypeError):
            raise StoreError(
                f"{self.url}/{POINTER}: is not what a run has written there. Delete it, and the next run publishes "
                f"anew; the versions themselves are stores to read meanwhile"
            ) from None
        return found

    def ids(self) -> list[str]:
        """All versions, published or not, the oldest first."""
        return list(filter(is_id, self.objects.folders(VERSIONS)))

    def open(self, version: str) -> Store:
        """Raises StoreError for what is no version's id, but a way out of the root."""
        if not is_id(version):
            raise StoreError(f"{self.url}/{POINTER}: {version!r} is not the id of a version; it is damaged, delete it")
        return Store(f"{self.url}/{VERSIONS}/{version}")

    def published(self) -> Store:
        """The published version. Raises ConfigError when there is none yet."""
        pointer = self.pointer()
        if pointer is None:
            raise ConfigError(f"{self.url}: no version has been published yet (`lle status` says how far the run is)")
        return self.open(pointer["version"])

    def unpublished(self) -> list[str]:
        """Versions that a run left unfinished, the newest first."""
        history = (self.pointer() or {}).get("history", [])
        return [version for version in reversed(self.ids())
                if version not in history and not self.open(version).objects.exists(RETIRED)]  # fmt: skip

    def new_id(self) -> str:
        """Its time in UTC, later than that of every other version whatever the clock says, and four random letters."""
        now = datetime.now(UTC).replace(microsecond=0)
        if ids := self.ids():
            with contextlib.suppress(ValueError):
                newest = datetime.strptime(ids[-1].partition("-")[0], ID_TIME).replace(tzinfo=UTC)
                now = max(now, newest + timedelta(seconds=1))
        return f"{now.strftime(ID_TIME)}-{secrets.token_hex(2)}"

    def publish(self, version: str, **facts: Any) -> Pointer:
        """Make a whole version the one that counts."""
        before = [other for other in (self.pointer() or {}).get("history", []) if other != version]
        when = datetime.now(UTC).isoformat(timespec="seconds")
        pointer = {"version": version, "when": when, **facts, "history": [version, *before]}
        self.store.put_json(POINTER, pointer)
        return pointer

    def amend(self, **facts: Any) -> None:
        """Correct what the pointer says of the published version."""
        self.store.put_json(POINTER, {**(self.pointer() or {}), **facts})

    def prune(self, keep: int) -> tuple[list[str], list[str]]:
        """Delete all but the newest `keep` published versions, and what runs left unfinished.

        A version that is read or written stays until it is not: it is marked first, and whoever begins to read looks
        for the mark after leaving a sign of its own.

        Returns what went, and why what did not could not be deleted.
        """
        pointer, gone, refused = self.pointer(), list[str](), list[str]()
        if pointer is None:
            return gone, refused
        kept = pointer["history"][:keep]
        if kept != pointer["history"]:
            self.amend(history=kept)
        for version in self.ids():
            try:
                if version not in kept and self.drop(version):
                    gone.append(version)
            except StoreError as error:  # the others go all the same, or one would let the disk fill up
                refused.append(str(error))
        return gone, refused

    def drop(self, version: str) -> bool:
        """Delete a version, the mark last, unless somebody reads or writes it."""
        store = self.open(version)
        store.put_json(RETIRED, {"when": time.time()})
        if any(_alive(store, name) for name in [LOCK, *store.objects.names(READERS)]):
            return False
        store.erase()
        store.objects.delete("")
        return True


def _alive(store: Store, name: str) -> bool:
    holder = store.get_json(name)
    return holder is not None and holder_alive(store, name, holder)


def published_url(url: str) -> str:
    """The store to read at a path or URL: the published version of a root, else the place itself.

    >>> import zarr
    >>> run = zarr.open_group(published_url("runs/rows.zarr"), mode="r")  # doctest: +SKIP
    """
    root = Versions(url)
    return root.published().url if root.store.has_versions() else root.store.url


def others(url: str, store: Store) -> list[Store]:
    """The other versions at a root, which may share files with this one; none for the store of one run."""
    root = Versions(url)
    ids = root.ids() if root.store.has_versions() else []
    return [other for other in map(root.open, ids) if other.url != store.url and other.objects.exists("zarr.json")]


def unreadable(store: Store) -> StoreError:
    """For whoever would read a published version that is gone."""
    return StoreError(
        f"{store.url}: is published, but cannot be read (no zarr.json). Run the job again to compute it anew"
    )


@contextlib.contextmanager
def reading(url: str) -> Iterator[Store]:
    """The store to read at a URL; a published version is not pruned meanwhile. Raises ConfigError where no run is.

    A reader that may not write there reads without leaving a sign; then `output.keep` later versions protect it.
    Raises StoreError where the published version is gone and no other is published.
    """
    root = Versions(url)
    if not root.store.has_versions():
        root.store.require_run()
        yield root.store
        return
    store, before = root.published(), ""
    while store.url != before:
        with contextlib.ExitStack() as signs:
            with contextlib.suppress(StoreError):
                signs.enter_context(RunLock(store, f"{READERS}/{secrets.token_hex(8)}.json"))
            if store.objects.exists("zarr.json") and not store.objects.exists(RETIRED):
                yield store
                return
        time.sleep(0.1)  # another version is published by now
        store, before = root.published(), store.url
    raise unreadable(store)
