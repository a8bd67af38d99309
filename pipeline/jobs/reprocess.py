"""A repeated job: it does nothing if nothing has changed, and otherwise computes a new version with all reusable steps.

Changes of the input are detected in three steps of increasing cost:

1. Names, sizes and times (or tags) of the files are compared. If all are equal, the job is done.
2. Only blocks whose files or chunks differ are read. The others are copied from the published version.
3. Digests of the blocks are compared. Input with equal bytes is unchanged, even if its date differs.

Files with a graph or with numbers of neighbours are treated in the same way, but they are read as a whole, at the step
that needs them.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from ..config.load import resolved
from ..config.models import Config
from ..core.errors import LleError, StoreError
from ..core.machine import versions
from ..engine import checkpoint
from ..engine.plan import History, RunResult
from ..engine.step import Json, Report, Step
from ..inputs import Source
from ..linalg.alignment import state_of_other
from ..search.variable_neighborhoods import state_of_files
from ..storage.blocks import Blocks
from ..storage.lock import RunLock
from ..storage.store import Store
from ..storage.versions import RETIRED, Versions

INPUT = "_run/input.json"
ELSEWHERE = {"output": {"store", "keep", "prometheus"}, "execution": {"cluster", "lock_wait"}}
"""Keys that change nothing in a version. All others, also those added later, give a new version if they change."""


@dataclass(frozen=True)
class InputState:
    """Stamps and settings that show, without reading, which blocks of the input are unchanged since another run.

    `content` is the digest of the whole input once it is read; "" before.
    """

    reads: str
    size: int
    stamps: tuple[str, ...]
    content: str = ""


@dataclass(kw_only=True)
class VersionHistory(History):
    """The history of a new version: digests, not dates, identify the input.

    `content` is the digest of the published version's input, or "" to skip the comparison.
    """

    config: Config
    source: Source
    content: str
    _input: InputState | None = field(default=None, init=False)

    def prepared(self, step: Step[Report]) -> Step[Report]:
        if step.task.locations and not self.source.detects_changes:  # a change is only seen by reading
            step = replace(step, input_state={**step.input_state, "version": self.attributes["version"]})
        if step.key != "ingest.read":
            return step
        size = cast(Blocks, step.task.parameters["blocks"]).size
        reads = _hash([self.config.input.model_dump(mode="json"), self.source.dtype.name, self.source.n_features])
        self._input = InputState(reads, size, tuple(self.source.stamps(size)))  # before the input is read
        if not self.source_stores or not self.source.detects_changes:
            return step
        earlier = self.source_stores[0].url, earlier_blocks(self.source_stores[0], self._input)
        return replace(step, task=replace(step.task, parameters={**step.task.parameters, "earlier": earlier}))

    def chained(self, upstream: str, step: Step[Report], reports: Sequence[Report]) -> str:
        if locations := step.task.locations:
            parameters = {name: value for name, value in step.task.parameters.items() if name not in locations}
            digests = [report.digest for report in reports]
            task = replace(step.task, parameters=parameters)
            step = replace(step, task=task, input_state={"digests": digests})
        return step.fingerprint(upstream)

    def is_known(self, store: Store, stage: str, digests: list[str]) -> bool:
        neighbors = self.config.neighbors
        has_files = neighbors.precomputed is not None or neighbors.k_per_point is not None
        last = "find_neighbors" if has_files else "ingest"  # the last stage that reads files
        if stage not in {"ingest", last}:
            return False
        content = _hash([config_key(self.config, None), digests]) if stage == last else ""
        assert self._input is not None  # the blocks of the input are read first
        store.put_record(
            INPUT, replace(self._input, content=content)
        )  # from now on the next run may reuse these blocks
        return stage == last and content == self.content


def earlier_blocks(source_store: Store, now: InputState) -> list[int]:
    """Finished blocks of the input in a store whose stamps have not changed."""
    recorded, record = source_store.read_record(INPUT, InputState), checkpoint.step_record(source_store, "ingest.read")
    if recorded is None or record is None or (recorded.reads, recorded.size) != (now.reads, now.size):
        return []
    same = {block for block, (old, new) in enumerate(zip(recorded.stamps, now.stamps, strict=False)) if old == new}
    return sorted(same & checkpoint.finished_blocks(source_store, "ingest.read", record.fingerprint).keys())


def config_key(config: Config, files: Json | None) -> str:
    """A hash over the settings that determine the result: all except the input and ELSEWHERE.

    It includes the state of the run to align with, and `files`, the state of files with a graph or with numbers of
    neighbours. If `files` is None, names and dates of these files are left out, because their digests are compared.
    """
    content = resolved(config)
    for section, keys in ELSEWHERE.items():
        content[section] = {key: value for key, value in content[section].items() if key not in keys}
    content["program"] = versions().get("lle-pipeline")  # a new version may give better results
    content["other_files"] = {**(files or {}), **state_of_other(config)}
    if files is None:
        named = {key: True for key in ("k_per_point", "precomputed") if content["neighbors"][key] is not None}
        content["neighbors"] |= named
    return _hash({key: value for key, value in content.items() if key != "input"})


def identity(config: Config, source: Source) -> str:
    """A hash over the config, and over names, sizes and times of the input's files and of all other files it names."""
    key = config_key(config, state_of_files(config))
    return _hash([key, config.input.model_dump(mode="json"), source.fingerprint()])


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def is_current(root: Versions, fingerprint: str, source: Source) -> bool:
    """Whether the published version is complete and was computed with this fingerprint."""
    pointer = root.pointer()
    same = pointer is not None and pointer.fingerprint == fingerprint and source.detects_changes
    return same and checkpoint.is_complete(root.published()) and root.published().metrics() is not None


def reprocess(
    config: Config, source: Source, fresh: bool, work: Callable[[Store, History], RunResult], log: Callable[[str], None]
) -> RunResult:
    """Run a job whose store is a root of versions, and publish its result.

    `work` runs all stages in the store of a version; it can end early if nothing has changed. A new version is
    published only after its report is written and its bounds are met. After any error the published version stays.
    """
    started, root, fingerprint = time.perf_counter(), Versions(config.output.store), identity(config, source)
    root.check_place()
    with RunLock(root.store) as lock:
        if root.delete_damaged_pointer():
            log("published.json was damaged: this run writes it again, the other versions stay as its history")
        if not fresh and is_current(root, fingerprint, source):
            log("nothing has changed: the files of the input and the config are those of the published version")
            _prune(root, config, log)
            return _unchanged(root, {}, {}, started)
        store, history = begin(root, config, source, fingerprint, fresh)
        base = f", built on {version_id(history.source_stores[0])}" if history.source_stores else ""
        log(f"version {version_id(store)}{base}")
        result = work(store, history)
        # A process that was suspended may have lost its lock. Its version must not replace that of the newer run.
        if not lock.held():
            raise StoreError(f"{root.url}: another run has taken over; version {version_id(store)} is not published")
        if result.unchanged:
            _same_bytes(root, store, fingerprint)
            log("nothing has changed: the input has other files or dates, but the same bytes")
            _prune(root, config, log)
            return _unchanged(root, result.computed, result.reused, started)
        publish(root, store)
        log(f"published: {version_id(store)}")
        _prune(root, config, log)
    return replace(result, version=version_id(store), seconds=time.perf_counter() - started)


def begin(
    root: Versions, config: Config, source: Source, fingerprint: str, fresh: bool, forecast: bool = False
) -> tuple[Store, VersionHistory]:
    """The version to work in, and the history of results it may reuse.

    An interrupted version with the same fingerprint is resumed. The finished steps of the newest other interrupted
    version and of the published versions are reused; older interrupted versions are deleted. A `forecast` changes
    nothing.
    """
    interrupted, pointer = root.unpublished(), root.pointer()
    published = None if pointer is None else root.published()
    readable = [version for version in interrupted if root.open(version).is_readable()]
    resumed = None
    if not fresh and source.detects_changes:
        begun_with = ((version, root.open(version).attributes().get("fingerprint")) for version in readable)
        resumed = next((version for version, found in begun_with if found == fingerprint), None)
    others = [version for version in readable if version != resumed]
    newest_interrupted, history = others[:1], root.history()
    if not forecast:
        for version in interrupted:
            if version == resumed or (version in newest_interrupted and not fresh):
                continue
            # A version is finished but none is published if the pointer was damaged or deleted.
            if pointer is not None or not checkpoint.is_complete(root.open(version)):
                with contextlib.suppress(StoreError):  # pruning tries again and reports the reason
                    root.drop(version)
    reusable = () if fresh else (*history[:1], *newest_interrupted, *history[1:])
    source_stores = tuple(filter(Store.is_readable, map(root.open, reusable)))
    compared = not fresh and published is not None and checkpoint.is_complete(published)
    content = pointer.content if compared and pointer is not None else ""
    version = resumed or root.new_id()
    attributes = {"version": version, "fingerprint": fingerprint}
    built_on = VersionHistory(source_stores, attributes, config=config, source=source, content=content)
    return root.open(version), built_on


def _same_bytes(root: Versions, store: Store, fingerprint: str) -> None:
    """Record the new files of an unchanged input in the published version, and delete the version begun for them."""
    published, begun = root.published(), store.attributes()
    published.put_json(INPUT, store.get_json(INPUT) or {})
    published.create_group({key: begun[key] for key in ("config", "input_fingerprint", "columns", "folders")})
    if (pointer := root.pointer()) is not None:
        root.point_to(replace(pointer, fingerprint=fingerprint))
    with contextlib.suppress(StoreError):  # pruning tries again and reports the reason
        root.drop(version_id(store))


def _unchanged(root: Versions, computed: dict[str, int], reused: dict[str, int], started: float) -> RunResult:
    store = root.published()
    metrics = store.metrics() or {}
    seconds = time.perf_counter() - started
    return RunResult(store.url, metrics, computed, reused, seconds, version=version_id(store), unchanged=True)


def _prune(root: Versions, config: Config, log: Callable[[str], None]) -> None:
    """Delete old versions. A version that cannot be deleted is reported; the next run tries again."""
    try:
        deleted, failures = root.prune(config.output.keep or 1)
    except StoreError as error:
        deleted, failures = [], [str(error)]
    if deleted:
        log(f"pruned: {', '.join(deleted)}")
    for failure in failures:
        log(f"not pruned: {failure}")


def publish(root: Versions, store: Store) -> None:
    """Publish a finished version. Without a published one, the other finished versions become its history."""
    others = finished_versions(root)[::-1] if root.pointer() is None else []
    fingerprint, n_rows = str(store.attributes().get("fingerprint", "")), (store.metrics() or {}).get("n_input")
    recorded = store.read_record(INPUT, InputState)
    root.publish(version_id(store), fingerprint, "" if recorded is None else recorded.content, n_rows, others)


def version_id(store: Store) -> str:
    return store.url.rsplit("/", 1)[1]


def is_finished(store: Store) -> bool:
    """Whether every block of a version is there, its metrics can be read, and no process is deleting it."""
    try:
        return not store.objects.exists(RETIRED) and checkpoint.is_complete(store) and store.metrics() is not None
    except LleError:
        return False


def finished_versions(root: Versions) -> list[str]:
    """The finished versions, the oldest first."""
    return [version for version in root.ids() if is_finished(root.open(version))]
