"""`lle versions`, `lle publish` and `lle clean`: the versions of a store with output.keep."""

from typing import TypedDict

from ..core.errors import ConfigError, StoreError
from ..engine.step import Json
from ..storage.lock import FOR_A_COMMAND, LOCK, RunLock
from ..storage.versions import Versions
from .reprocess import finished_versions, is_finished, publish


class Version(TypedDict):
    """A version; values of its report are None if it has none, `bytes` is None in an object store."""

    version: str
    finished: str | None
    rows: int | None
    verdict: str | None
    bytes: int | None
    published: bool
    complete: bool


class ListedVersions(TypedDict):
    """The versions of a store, the newest first, and the published one."""

    store: str
    published: str | None
    versions: list[Version]


def list_versions(url: str) -> ListedVersions:
    """All versions, the newest first: id, date of the report, rows, verdict, bytes, published and finished or not.

    Raises ConfigError if the store has no versions.
    """
    root = _root(url)
    try:
        pointer = root.pointer()
    except StoreError:  # damaged: a version of the list can be published again
        pointer = None
    published = None if pointer is None else pointer.version
    rows = [_described(root, version, published) for version in reversed(root.ids())]
    return {"store": root.url, "published": published, "versions": rows}


def _described(root: Versions, version: str, published: str | None) -> Version:
    store = root.open(version)
    metrics = store.metrics() or {}
    is_remote = "://" in root.url  # one request for each object would take minutes
    n_bytes = None if is_remote else sum(store.objects.size(name) for name in store.objects.names(""))
    return {
        "version": version,
        "finished": metrics.get("finished"),
        "rows": metrics.get("n_input"),
        "verdict": metrics.get("verdict"),
        "bytes": n_bytes,
        "published": version == published,
        "complete": is_finished(store),
    }


def publish_version(url: str, version: str) -> dict[str, str | None]:
    """Publish a finished version, older or newer than the published one. The versions stay as they are.

    If the record of the published version is lost or damaged, the other finished versions become its history.

    Raises ConfigError if there is no such version or it is not finished, StoreError while a run is active.
    """
    root = _root(url)
    with RunLock(root.store, LOCK, FOR_A_COMMAND):
        if version not in root.ids():
            listed = ", ".join(reversed(root.ids())) or "none"
            raise ConfigError(f"{root.url}: has no version {version!r}; there are {listed}")
        store = root.open(version)
        if not is_finished(store):
            raise ConfigError(
                f"{store.url}: this version is not finished; choose another one that `lle versions` lists"
            )
        root.delete_damaged_pointer()
        before = None if (pointer := root.pointer()) is None else pointer.version
        publish(root, store)
    return {"store": root.url, "published": version, "before": before}


def clean_store(url: str, keep: int | None) -> Json:
    """Delete unfinished versions, unfinished temporary files, and all but the `keep` most recently published versions.

    keep None: all published versions are kept. Without a published version, every finished version is kept. Returns the
    `deleted` versions, the number of deleted `partial_files`, and the `failures`: the errors of versions that remain.

    Raises ConfigError if there is no store, StoreError while a run is active.
    """
    root = Versions(url)
    if not root.store.has_versions():
        root.store.require_run()
    with RunLock(root.store, LOCK, FOR_A_COMMAND):
        if (pointer := root.pointer()) is None:
            deleted, errors = root.delete_all_but(finished_versions(root))
        else:
            deleted, errors = root.prune(len(pointer.history) if keep is None else keep)
        n_files = root.objects.delete_partial_files()
    return {"store": root.url, "deleted": deleted, "partial_files": n_files, "failures": errors}


def _root(url: str) -> Versions:
    root = Versions(url)
    if not root.store.has_versions():
        root.store.require_run()
        raise ConfigError(
            f"{root.url}: has no versions; a run with `output: {{keep: 5}}` writes one for each change, and keeps 5"
        )
    return root
