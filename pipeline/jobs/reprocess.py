"""A job that runs again and again: nothing when nothing has changed, else a new version that takes over what it can.

Whether the input has changed is asked at three prices. Names, sizes and times (or tags) of its files: all equal, all
done. Where they differ, only the blocks whose files or chunks differ are read, the others come from the published
version's copy. Then the digests of the blocks decide: equal bytes are the input of before, whatever their date. The
same holds for files of numbers of neighbours or of a graph, but these are read as a whole, where the run needs them.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from ..config.models import Config, resolved
from ..core.errors import LleError, StoreError
from ..core.machine import versions
from ..engine import checkpoint
from ..engine.plan import Json, Layout, Report, RunResult, Step
from ..inputs import Source
from ..linalg.alignment import state_of_other
from ..search.incremental import base_version
from ..search.variable_neighborhoods import names_files, state_of_files
from ..storage import records
from ..storage.lock import RunLock
from ..storage.store import Store
from ..storage.versions import Versions

INPUT = "_run/input.json"


class History:
    """What a run may take over from earlier ones. This one, of a store without versions: nothing."""

    source_stores: tuple[Store, ...] = ()
    attributes: dict[str, Any] = {}  # noqa: RUF012 (nothing writes into it)

    def prepared(self, step: Step) -> Step:
        """The step with what it needs to know of earlier runs."""
        return step

    def begun(self, layout: Layout, say: Callable[[str], None]) -> Layout:
        """The layout with the earlier version that the run may build on."""
        return layout

    def chained(self, upstream: str, step: Step, reports: list[Report]) -> str:
        """The fingerprint that the steps after this one build on."""
        return checkpoint.fingerprint_of(upstream, step)

    def is_known(self, store: Store, stage: str, digests: list[str]) -> bool:
        """Whether the digests of all that was read are those of the published version: then the run may end here.

        Asked at the end of each stage, with the digests of what was read by then.
        """
        return False


class VersionHistory(History):
    """The history of a new version: finished steps come from source stores, and digests identify the input, not dates.

    `content` is the digest of the published version's input, "" if it is not compared.
    """

    def __init__(
        self, config: Config, source: Source, source_stores: tuple[Store, ...], content: str, attributes: dict[str, Any]
    ) -> None:
        self.source_stores, self.attributes = source_stores, attributes
        self._config, self._source, self._content = config, source, content
        self._input: dict[str, Any] = {}

    def begun(self, layout: Layout, say: Callable[[str], None]) -> Layout:
        if not self.source_stores:
            self.attributes["built_on"] = None
            return layout
        layout, why = base_version.extended_layout(self._config, layout, self.source_stores[0])
        self.attributes["built_on"] = None if layout.earlier is None else asdict(layout.earlier)
        if why:
            say(why)
        return layout

    def prepared(self, step: Step) -> Step:
        if step.decides.digested and not self._source.detects_changes:  # then only reading tells
            identity = {**step.decides.identity, "version": self.attributes["version"]}
            step = replace(step, decides=replace(step.decides, identity=identity))
        if (step.stage, step.name) != ("ingest", "read"):
            return step
        size = step.decides.parameters["blocks"].size
        self._input = describe_input(self._config, self._source, size)  # before the input is read
        if not self.source_stores or not self._source.detects_changes:
            return step
        earlier = {"url": self.source_stores[0].url, "blocks": earlier_blocks(self.source_stores[0], self._input)}
        return replace(step, runs=replace(step.runs, resources={**step.runs.resources, "earlier": earlier}))

    def chained(self, upstream: str, step: Step, reports: list[Report]) -> str:
        if step.decides.digested:
            parameters = {
                key: value for key, value in step.decides.parameters.items() if key not in step.decides.digested
            }
            digests = [report.get("digest") for report in reports]
            step = replace(step, decides=replace(step.decides, parameters=parameters, identity={"digests": digests}))
        return checkpoint.fingerprint_of(upstream, step)

    def is_known(self, store: Store, stage: str, digests: list[str]) -> bool:
        last = "find_neighbors" if names_files(self._config) else "ingest"
        if stage not in {"ingest", last}:
            return False
        content = _hash([config_key(self._config, None), digests]) if stage == last else ""
        store.put_json(INPUT, {**self._input, "content": content})  # after ingest: what the next run may take
        return stage == last and content == self._content


def describe_input(config: Config, source: Source, size: int) -> dict[str, Any]:
    """What tells, unread, which blocks of the input are still those of another run."""
    reads = [config.input.model_dump(mode="json"), source.dtype.name, source.n_features]
    return {"reads": _hash(reads), "size": size, "stamps": source.stamps(size)}


def earlier_blocks(source_store: Store, now: dict[str, Any]) -> list[int]:
    """Blocks of the input that a store holds whole and that have the stamps of now."""
    then, record = source_store.get_record(INPUT, records.INPUT), checkpoint.step_record(source_store, "ingest", "read")
    if then is None or record is None or any(then[key] != now[key] for key in ("reads", "size")):
        return []
    same = {block for block, (old, new) in enumerate(zip(then["stamps"], now["stamps"], strict=False)) if old == new}
    return sorted(same & checkpoint.finished_blocks(source_store, "ingest", "read", record["fingerprint"]).keys())


def config_key(config: Config, files: Json | None) -> str:
    """A hash over what the config says about the result: all but the input, where to write, and on what machines.

    Of what it names besides the state counts: of another run to align with, and `files` is that of a graph or of
    numbers of neighbours. None where their digests are compared: then neither their dates nor their names count.
    """
    content = resolved(config)
    content["output"] = {"report": config.output.report}
    content["execution"] = {"block_points": config.execution.block_points}
    content["program"] = versions().get("lle-pipeline")  # which may have learnt better since
    content["other_files"] = {**(files or {}), **state_of_other(config)}
    if files is None:
        named = {key: True for key in ("k_per_point", "precomputed") if content["neighbors"][key] is not None}
        content["neighbors"] |= named
    return _hash({key: value for key, value in content.items() if key != "input"})


def identity(config: Config, source: Source) -> str:
    """A hash over the config and the names, sizes and times of the input's files and of those it names besides."""
    key = config_key(config, state_of_files(config))
    return _hash([key, config.input.model_dump(mode="json"), source.fingerprint()])


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def is_current(root: Versions, mark: str, source: Source) -> bool:
    """Whether the published version is whole and of this identity."""
    pointer = root.pointer()
    same = pointer is not None and pointer["fingerprint"] == mark and source.detects_changes
    return same and checkpoint.is_whole(root.published())


def reprocess(
    config: Config, source: Source, fresh: bool, work: Callable[[Store, History], RunResult],
    say: Callable[[str], None],
) -> RunResult:  # fmt: skip
    """Run a job whose store is a root of versions, and publish what it finds.

    `work` runs all stages in the store of a version, or says after the first that nothing has changed. A new version
    counts only after its report is written and its bounds are met: whatever raises leaves the published one as it is.
    """
    started, root, mark = time.perf_counter(), Versions(config.output.store), identity(config, source)
    root.check_place()
    with RunLock(root.store) as lock:
        if fresh:
            root.delete_damaged_pointer()
        if not fresh and is_current(root, mark, source):
            say("nothing has changed: the files of the input and the config are those of the published version")
            _prune(root, config, say)
            return _unchanged(root, {}, {}, started)
        store, history = begin(root, config, source, mark, fresh)
        base = f", built on {version_id(history.source_stores[0])}" if history.source_stores else ""
        say(f"version {version_id(store)}{base}")
        result = work(store, history)
        if not lock.held():
            raise StoreError(f"{root.url}: another run has taken over; version {version_id(store)} is not published")
        if result.unchanged:
            _same_bytes(root, store, mark)
            say("nothing has changed: the input has other files or dates, but the same bytes")
            _prune(root, config, say)
            return _unchanged(root, result.computed, result.reused, started)
        content = store.get_record(INPUT, {"content": str}) or {"content": ""}
        facts = {"fingerprint": mark, **content, "rows": result.metrics.get("n_input")}
        root.publish(version_id(store), **facts)
        say(f"published: {version_id(store)}")
        _prune(root, config, say)
    return replace(result, version=version_id(store), seconds=time.perf_counter() - started)


def begin(
    root: Versions, config: Config, source: Source, mark: str, fresh: bool, forecast: bool = False
) -> tuple[Store, VersionHistory]:
    """The version to work in and what it may take over: an interrupted one of the same identity is resumed.

    One of another identity gives what it has finished, as the published ones do; what is older is dropped. A
    `forecast` changes nothing.
    """
    left = root.unpublished()
    published = None if root.pointer() is None else root.published()
    mine = None
    if not fresh and source.detects_changes:
        mine = next((version for version in left if _mark_of(root.open(version)) == mark), None)
    other = next((version for version in left if version != mine and _is_run(root.open(version))), None)
    if not forecast:
        for version in left:
            if version != mine and (fresh or version != other) and not _worth_keeping(root, version):
                with contextlib.suppress(StoreError):  # pruning tries again, and says why
                    root.drop(version)
    older = (root.pointer() or {}).get("history", [])[1:]
    others = [root.open(version) for version in [*([] if other is None else [other]), *older]]
    source_stores = () if fresh else tuple(filter(_is_run, [*([] if published is None else [published]), *others]))
    compared = not fresh and published is not None and checkpoint.is_whole(published)
    content = (root.pointer() or {}).get("content", "") if compared else ""
    version = mine or root.new_id()
    attributes = {"version": version, "fingerprint": mark}
    return root.open(version), VersionHistory(config, source, source_stores, content, attributes)


def _worth_keeping(root: Versions, version: str) -> bool:
    """Whether a version is finished and no other one is published: its pointer was damaged or deleted."""
    return root.pointer() is None and checkpoint.is_whole(root.open(version))


def _is_run(store: Store) -> bool:
    """Whether a version can be read: one may have been killed before it began, or be damaged, or removed by hand."""
    try:
        return store.is_run()
    except LleError:
        return False


def _mark_of(store: Store) -> str:
    """The identity that a version was begun with."""
    return str(store.attributes().get("fingerprint", "")) if _is_run(store) else ""


def _same_bytes(root: Versions, store: Store, mark: str) -> None:
    """Let the published version know the files under which its input now lies; the version begun for them goes."""
    root.published().put_json(INPUT, store.get_json(INPUT))
    root.amend(fingerprint=mark)
    with contextlib.suppress(StoreError):  # pruning tries again, and says why
        root.drop(version_id(store))


def _unchanged(root: Versions, computed: dict[str, int], reused: dict[str, int], started: float) -> RunResult:
    store = root.published()
    metrics = store.get_record("report/metrics.json", {}) or {}
    seconds = time.perf_counter() - started
    return RunResult(store.url, metrics, computed, reused, seconds, version=version_id(store), unchanged=True)


def _prune(root: Versions, config: Config, say: Callable[[str], None]) -> None:
    """What is published stays so when an old version cannot be deleted; the next run tries again."""
    try:
        gone, refused = root.prune(config.output.keep or 1)
    except StoreError as error:
        gone, refused = [], [str(error)]
    if gone:
        say(f"pruned: {', '.join(gone)}")
    for why in refused:
        say(f"not pruned: {why}")


def version_id(store: Store) -> str:
    """The name of a version, by its store."""
    return store.url.rsplit("/", 1)[1]
