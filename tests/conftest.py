"""What all tests share: seeded generators, and the stages run one after the other on a store of the test's own."""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy as np
import pytest
from hypothesis import settings
from object_servers import moto_server

from pipeline.config.models import Config
from pipeline.engine import checkpoint
from pipeline.engine.execute import Executor, run_step
from pipeline.engine.plan import BlockReport, Layout, Report, Step
from pipeline.kernels.eigensolver.pardiso import reproducible_environment
from pipeline.stages import ingest
from pipeline.storage.store import Store

STAGES = (
    "ingest", "order_points", "find_neighbors", "mend_graph", "solve_weights", "assemble_cost", "solve_embedding",
    "measure_quality", "write_report",
)  # fmt: skip
SEEDS = (19, 83, 211)
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# Commands that tests call in this process give the bytes of the installed one, which sets this before MKL loads.
os.environ.update({name: os.environ.get(name, value) for name, value in reproducible_environment().items()})


# A loaded machine is slow, not wrong.
settings.register_profile("pipeline", deadline=None, max_examples=50)
settings.load_profile("pipeline")


class Progress:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.advanced: list[int] = []
        self.ended: list[tuple[str, int]] = []

    def begin(self, step: Step, done: int) -> None:
        self.begun.append((step.name, done))

    def advance(self, step: Step, report: BlockReport) -> None:
        self.advanced.append(report.block)

    def end(self, step: Step, seconds: float, computed: int) -> None:
        self.ended.append((step.name, computed))


class StagesRun(NamedTuple):
    """What some stages left: the store, the layout known by then, the reports of each (stage, step) in block order."""

    store: Store
    layout: Layout
    reports: dict[tuple[str, str], list[Report]]


def drive_stage(name: str, config: Config, layout: Layout, store: Store, executor: Executor, upstream: str,
                before: set[tuple[str, str]] | None) -> tuple[StagesRun, str]:  # fmt: skip
    """Run the steps of one stage on a store as a run does; also returns the fingerprint for the next stage."""
    steps = import_module(f"pipeline.stages.{name}").steps(config, layout)
    reports: dict[tuple[str, str], list[Report]] = {}
    try:
        step = next(steps)
        while True:
            with dask.config.set(scheduler="synchronous" if executor.client is None else "distributed"):
                done = run_step(step, upstream, store, executor, Progress(), before)
            if before is not None:
                before.add((step.stage, step.name))
            reports[step.stage, step.name] = [report.report for report in done]
            if step.feeds:
                upstream = checkpoint.fingerprint(upstream, step)
            step = steps.send(reports[step.stage, step.name])
    except StopIteration as stop:
        return StagesRun(store, stop.value, reports), upstream


def drive_stages(config: Config, upto: str, executor: Executor | None = None) -> StagesRun:
    """Run the stages from ingest to `upto`; a store that is there already is resumed."""
    store = Store(config.output.store)
    store.create_group({})
    layout = ingest.first_layout(config, ingest.open_input(config))
    reports: dict[tuple[str, str], list[Report]] = {}
    upstream, before = "", set[tuple[str, str]]()
    for name in STAGES[: STAGES.index(upto) + 1]:
        run, upstream = drive_stage(name, config, layout, store, executor or Executor(None), upstream, before)
        layout, reports = run.layout, reports | run.reports
    return StagesRun(store, layout, reports)


LONGEST = (
    "test_versions", "test_slurm", "test_methods", "test_neighborhoods", "test_appended", "test_kubernetes",
    "test_reprocess", "test_faults", "test_benchmarks", "test_object_storage", "test_interrupt", "test_alignment",
)  # fmt: skip
"""Files that take more than a minute: begun first, or the last of them would run while the other processes wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


@pytest.fixture(params=SEEDS, ids="seed{}".format)
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator for each of several seeds; `parametrize("rng", [..], indirect=True)` for other or fewer ones."""
    return np.random.default_rng(request.param)


@pytest.fixture
def serial() -> Iterator[Executor]:
    """The executor that runs blocks one after the other in this process."""
    with dask.config.set(scheduler="synchronous"):
        yield Executor(None)


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture(scope="session")
def run_stages() -> Callable[..., StagesRun]:
    """`run_stages(config, upto)` runs the stages up to and with `upto`, serially unless an executor is given."""
    return drive_stages


@pytest.fixture(scope="session")
def run_stage() -> Callable[..., StagesRun]:
    """`run_stage(name, config, layout, store)` runs one stage on a store that holds what it needs."""

    def run(name: str, config: Config, layout: Layout, store: Store) -> StagesRun:
        return drive_stage(name, config, layout, store, Executor(None), "", None)[0]

    return run


@pytest.fixture(scope="session")
def make_config() -> Callable[..., Config]:
    """`make_config(folder, points, block_points, **sections)`: a config for an array of points and a new store."""

    def make(folder: Path, points: Any, block_points: int | str = "auto", **sections: Any) -> Config:
        number = len(list(folder.glob("*.npy")))
        path = folder / f"points{number}.npy"
        np.save(path, points)
        data = {
            "input": {"kind": "npy", "path": str(path)},
            "output": {"store": str(folder / f"run{number}.zarr")},
            "execution": {"block_points": block_points, "cluster": {"kind": "serial"}},
            "graph": {"min_component": 20},
        }
        return Config.model_validate({**data, **sections})

    return make


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """`shared_data("tables/skin.npz")`: a file of the data sets beside the checkout; the test is skipped without it."""

    def find(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_file():
            pytest.skip(f"needs the data set {name} in the folder shared/data beside the repository")
        return path

    return find


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An object store on loopback; the tests are skipped where its server is not installed."""
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def moto_bucket(moto: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same with its credentials in the environment."""
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    return moto


def swiss_roll(n_points: int, rng: np.random.Generator) -> np.ndarray:
    """(n_points, 3) points of a two-dimensional manifold, float64."""
    angle = 1.5 * np.pi * (1 + 2 * rng.random(n_points))
    return np.column_stack([angle * np.cos(angle), 21 * rng.random(n_points), angle * np.sin(angle)])
