"""Organisation of the tests, and the fixtures that all of them share.

Folders: `tests/` mirrors `pipeline/`; a module `pipeline/a/b.py` has its tests in `tests/a/test_b.py`. Helpers that
more than one file uses are in `tests/support/`, fixtures of one folder in its `conftest.py`. Test files import no other
test file.

Three tiers, by mark:
- no mark: `make test`, on every change. Minutes on two cores, so a case that repeats a rule is marked slow.
- `slow`: `make test-all`. Clusters, object servers, faults, benchmarks, measured memory, and all seeds but the first:
  `seeds(19, 83, 211)` marks the others slow, and so does the fixture `rng`.
- `manual`: `pytest -m manual`. Many minutes or gigabytes.

Cheap runs: a run of the real stages on 600 points takes nearly a second. What a run records,
reuses, locks, publishes or finds damaged is tested with the fixture `toy_stages`, at a fifth of that; a kernel is
tested on arrays; a stage with `run_stages`. Use a whole run only for what no smaller test can show.

Vary one parameter at a time, and mark the full product slow. Break the code once by hand and see the test fail.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from lle.config.models import Config
from lle.core.machine import library_environment
from lle.engine.execute import Executor
from lle.engine.plan import Layout
from lle.stages import registry
from lle.storage.store import Store
from tests.support.object_servers import moto_server
from tests.support.paths import SHARED_DATA
from tests.support.seeds import seeds
from tests.support.stage_runs import Progress, StagesRun, drive_stage, drive_stages
from tests.support.toy_stages import TOY_STAGES

# Commands that tests call in this process give the bytes of the installed one, which sets this before MKL loads.
os.environ.update({name: os.environ.get(name, value) for name, value in library_environment().items()})
# Long, because a loaded machine may be slow.
settings.register_profile("pipeline", deadline=None, max_examples=50)
settings.load_profile("pipeline")


LONGEST = (
    "test_slurm",
    "test_object_storage",
    "test_faults",
    "test_determinism",
    "test_kubernetes",
    "test_methods",
    "test_nn_descent_cache",
    "test_existing_scheduler",
    "test_explore_browser",
    "test_docs",
    "test_types",
    "test_measured_memory",
    "test_benchmarks",
    "test_fuzz",
    "test_kill_and_resume",
)
"""Files whose slow tests take long, those sent whole first. They begin first, so that no process waits for the last."""

INDEPENDENT = ("test_measured_memory", "test_benchmarks", "test_fuzz", "test_kill_and_resume")
"""Files whose slow tests share no server, client or result, so that `make test-all` can spread them."""


class ByFile(LoadFileScheduling):
    """Sends the tests of a file to one process, which starts their servers once; those of INDEPENDENT to any."""

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return nodeid if Path(scope).stem in INDEPENDENT else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile | None:
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    addresses = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addresses:  # the processes of pytest-xdist must collect the same ids
        raise pytest.UsageError(f"expected ids without addresses, found {addresses[:3]}; give these parameters an id")
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


@pytest.fixture(params=seeds(19, 83, 211), ids="seed{}".format)
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


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store on disk."""
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({})
    return store


@pytest.fixture
def toy_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process run the toy stages: for tests of what a run writes down, reuses, locks and publishes."""
    monkeypatch.setattr(registry, "STAGES", TOY_STAGES)


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
    """`make_config(folder, points, block_points, **sections)`: a config for an array of points and a new store.

    No pictures unless the section output is given, and weights.reg is scikit-learn's 1e-3 unless weights is.
    """

    def make(folder: Path, points: Any, block_points: int | str = "auto", **sections: Any) -> Config:
        number = len(list(folder.glob("*.npy")))
        path = folder / f"points{number}.npy"
        np.save(path, points)
        data = {
            "input": {"kind": "npy", "path": str(path)},
            "output": {"store": str(folder / f"run{number}.zarr"), "report": False},
            "execution": {"block_points": block_points, "cluster": {"kind": "serial"}},
            "graph": {"min_component": 20},
            "weights": {"reg": 1e-3},
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
