"""A run from its config to its report: in a store, as a new version, or as a fit and new points."""

import contextlib
from collections.abc import Iterator

from ..clusters.limits import memory_is_in_use
from ..config.models import Config
from ..core.errors import NotEnoughMemory
from ..core.signals import interruptible
from ..engine.plan import History, RunResult
from ..engine.progress import RunProgress
from ..engine.step import Json
from ..report.prometheus import Published, reported
from ..stages import ingest
from ..storage.lock import wait_for_lock
from ..storage.store import Store
from ..storage.versions import Versions
from .reprocess import reprocess
from .run_stages import Shared, run_store
from .status import failure_recorded


def run(
    config: Config,
    fresh: bool,
    progress: RunProgress,
    profile: bool = False,
    shared: Shared | None = None,
    attributes: Json | None = None,
) -> RunResult:
    """Run every stage. Raises LleError with the exit code of the failure; finished blocks stay in the store.

    `profile` saves Dask's performance report next to the report of the run. `attributes` replace those that the store
    gets from config and input.
    """
    versioned = config.output.keep is not None

    def published() -> Published | None:
        pointer = Versions(config.output.store).pointer() if versioned else None
        return None if pointer is None else Published(pointer.version, pointer.when)

    def all_stages(store: Store, history: History) -> RunResult:
        history.attributes |= attributes or {}
        return run_store(config, store, fresh and not versioned, progress, profile, history, closing, shared)

    def once() -> RunResult:
        if config.input.fit_sample is not None:
            from .fit_and_place import fit_and_place  # loads Arrow

            return fit_and_place(config, fresh, progress, profile)
        if versioned:
            with interruptible():
                return reprocess(config, ingest.open_input(config), fresh, all_stages, progress.print_line)
        return all_stages(Store(config.output.store), History(shared.source_stores if shared else ()))

    with (
        reported(config.output.prometheus, config.output.store, published) as report,
        failure_recorded(config.output.store),
        contextlib.ExitStack() as closing,  # after a successful run the cluster closes once the version is published
        _retry_where_memory_is_in_use(config),
    ):
        done = False
        try:
            result = wait_for_lock(once, config.execution.lock_wait, progress.print_line)
            done = True
        finally:
            progress.stop(done)
        report(result)
    return result


@contextlib.contextmanager
def _retry_where_memory_is_in_use(config: Config) -> Iterator[None]:
    """If workers do not fit the free memory of this machine, but would fit an idle one, the exit code is 1."""
    try:
        yield
    except NotEnoughMemory as error:
        if error.worker_bytes is None or not memory_is_in_use(config.execution.cluster, error.worker_bytes):
            raise
        raise NotEnoughMemory(
            f"{error}. Other programs use memory of this machine now, so the same command may succeed later"
        ) from None
