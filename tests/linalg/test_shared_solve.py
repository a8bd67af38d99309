"""Eigenpairs of a component whose rows lie in several processes: threads, or Dask workers of this process."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from distributed import Client, LocalCluster

from lle.clusters.connect import connect
from lle.config.load import check_config
from lle.config.models import Cluster
from lle.core.errors import NotEnoughMemory
from lle.engine.plan import Layout
from lle.kernels.eigensolver.costs import SOLVER_BYTES, shared_bytes, shared_size
from lle.kernels.eigensolver.rows import in_group
from lle.linalg import component_solve, shared_solve, solver_checkpoint, solver_progress
from lle.linalg.component_solve import SolveJob
from lle.stages import solve_embedding
from lle.storage.blocks import Blocks
from lle.storage.store import Store
from tests.support.commands import lle, roll_store, write_config
from tests.support.thread_group import in_threads

N, CUT = 700, 200
PLENTY, LITTLE = 2**30, 2**10


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    return roll_store(tmp_path_factory.mktemp("solved"), N)


@pytest.fixture(autouse=True)
def _several_cuts(monkeypatch):
    monkeypatch.setattr(shared_solve, "in_group", partial(in_group, cut_rows=CUT))
    monkeypatch.setattr(shared_solve, "cut_bounds", partial(shared_solve.cut_bounds, cut_rows=CUT))
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.COARSEST_ROWS", 60)
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.MOST_SHARED_FILL", 2.0)  # so few points have much fill


def job(store, **changed):
    wanted = SolveJob(store.url, 0, "lle", 2, "multigrid", 1e-8, Blocks(N, N), LITTLE, 60, False, on_workers=True)
    return replace(wanted, **changed)


def stored(store):
    bundle = store.read_bundle("_work/eigen/00000")
    return bundle["rows"], bundle["vectors"], bundle["eigenvalues"]


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("limits", "expected"),
    [([2 * 2**30, 3 * 2**30], int(0.8 * 2 * 2**30) - SOLVER_BYTES), ([0, 0], LITTLE), ([2**20, 0], 0)],
)
def test_a_worker_may_use_a_share_of_the_least_memory_less_that_of_the_process(solved, monkeypatch, limits, expected):
    def run_in_group(client, function, arguments, *others):
        raise InterruptedError(arguments[1])

    monkeypatch.setattr(shared_solve, "get_client", lambda: None)
    monkeypatch.setattr(shared_solve, "workers_of", lambda client: {n: {"memory_limit": n} for n in limits})
    monkeypatch.setattr(shared_solve, "run_in_group", run_in_group)
    with pytest.raises(InterruptedError, match=f"^{expected}$"):
        shared_solve.solve_on_workers(solved, job(solved), np.arange(N))


@pytest.mark.slow
@pytest.mark.parametrize("more_pairs", [(), (5, 8)])
def test_workers_give_the_solution_of_one_process(solved, client, more_pairs):
    expected = component_solve.solve(
        solved, job(solved, max_bytes=PLENTY, more_pairs=more_pairs, n_neighbors=10), np.arange(N)
    )
    rows, vectors, eigenvalues = stored(solved)
    found = component_solve.solve(solved, job(solved, more_pairs=more_pairs, n_neighbors=10), np.arange(N))
    assert found.stats["reason"].startswith("multigrid")
    np.testing.assert_array_equal(stored(solved)[0], rows)
    np.testing.assert_allclose(stored(solved)[2], eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(stored(solved)[1], vectors, atol=1e-7)
    assert found.converged
    assert (found.coordinates, found.separated) == (expected.coordinates, expected.separated)
    np.testing.assert_allclose(found.participation, expected.participation, rtol=1e-6)
    assert not [name for name in solved.objects.names("_work/eigen") if "part-" in name or "state-" in name]


def in_processes(size, wanted, max_bytes=PLENTY):
    """The spectrum, and the vectors, which ``size`` threads have stored."""
    [(spectrum, _), *_] = in_threads(size, lambda group: shared_solve.solve_rows(group, wanted, max_bytes))
    n_cuts = len(shared_solve.cut_bounds(N)) - 1
    store, numbers = Store(wanted.url), range(len(spectrum.eigenvalues))
    vectors = [shared_solve.stored_vector(store, 0, n_cuts, number) for number in numbers]
    return spectrum, np.column_stack(vectors)


@cache
def in_two_processes(url):
    return in_processes(2, job(Store(url)))


def test_bytes_do_not_depend_on_the_number_of_processes(solved):
    expected, expected_vectors = in_two_processes(solved.url)
    assert expected.converged
    for size in (1, 4):
        spectrum, vectors = in_processes(size, job(solved))
        np.testing.assert_array_equal(vectors, expected_vectors)
        np.testing.assert_array_equal(spectrum.eigenvalues, expected.eigenvalues)


def test_a_stopped_solve_continues_in_another_number_of_processes(solved, monkeypatch):
    """As if a worker was lost: the others hold its rows from the saved state on."""
    _, expected = in_two_processes(solved.url)
    steps = []
    monkeypatch.setattr(solver_checkpoint, "SAVE_EVERY_SECONDS", 0.0)
    stopped, _ = in_processes(3, job(solved, max_steps=3))
    assert not stopped.converged
    [head] = solver_progress.saved_heads(solved, "_work/eigen")
    assert 0 < head.n_steps <= 3
    read = solver_checkpoint.read_state

    def noted(*arguments):
        state = read(*arguments)
        steps.append(state.n_steps)
        return state

    monkeypatch.setattr(shared_solve, "read_state", noted)
    _, vectors = in_processes(2, job(solved))
    np.testing.assert_array_equal(vectors, expected)
    assert steps == [head.n_steps] * 2
    solver_checkpoint.delete_state(solved, "_work/eigen/state-00000")


def test_a_state_of_one_process_is_not_mixed_with_one_of_several(solved, monkeypatch):
    monkeypatch.setattr(solver_checkpoint, "SAVE_EVERY_SECONDS", 0.0)
    _, expected = in_two_processes(solved.url)
    component_solve.solve(solved, job(solved, max_bytes=PLENTY, max_steps=2, on_workers=False), np.arange(N))
    _, vectors = in_processes(2, job(solved))
    np.testing.assert_array_equal(vectors, expected)
    solver_checkpoint.delete_state(solved, "_work/eigen/state-00000")


def test_the_plan_counts_copied_rows_and_entries_of_the_second_level():
    n, entries, copied = 10**6, 13 * 10**6, 5 * 10**5

    def growth(**changed):
        return shared_size(n, copied, entries, 2, **changed)[2] - shared_size(n, 0, entries, 2, **changed)[2]

    assert growth(hierarchy_bytes=10**9) == copied * (16 + 12 * 4)  # numbers of rows, and a block of four vectors
    assert growth(fill=5.0) == copied * 16 + 25 * entries * copied / n  # the setup needs most
    fills = [shared_size(n, 0, entries, 2, fill=fill)[2] for fill in (0.3, 1.0, 3.0, 5.0)]
    assert fills == sorted(fills)
    assert fills[3] - fills[2] == 2 * 50 * entries


def test_too_little_memory_names_what_a_worker_needs(solved):
    with pytest.raises(NotEnoughMemory, match=r"on 2 workers needs .* for the .* points of one of them") as error:
        in_processes(2, job(solved), max_bytes=LITTLE)
    assert "execution.cluster" in error.value.advice


def test_where_multigrid_fails_no_other_method_is_tried(solved, monkeypatch):
    monkeypatch.setattr("lle.kernels.eigensolver.multigrid.SLOWEST_COARSENING", 0.0)
    with pytest.raises(NotEnoughMemory, match="too few neighbours, and the memory of one process"):
        in_processes(2, job(solved))


@pytest.mark.slow
def test_a_run_whose_driver_has_too_little_memory_solves_on_the_workers(tmp_path, monkeypatch):
    monkeypatch.undo()  # the workers have the cuts of the program
    points = {"kind": "synthetic", "name": "swiss_roll", "n_points": 3000, "seed": 3}
    with connect(Cluster(kind="local", workers=2, memory="2GiB")) as client:
        address = {"cluster": {"kind": "address", "address": client.scheduler.address}}
        solver = {"n_components": 2, "max_memory": "2MiB"}
        little = write_config(tmp_path, input=points, eigensolver=solver, execution=address)
        result = lle("run", little)
    assert result["metrics"]["solver"]["method"] == "multigrid"
    embedding = Store(str(tmp_path / "run.zarr")).read_all("embedding")
    lle("run", write_config(tmp_path, input=points), "--fresh")
    np.testing.assert_allclose(embedding, Store(str(tmp_path / "run.zarr")).read_all("embedding"), atol=1e-5)


LAYOUT = Layout(10**7, 3, "<f4", 65_536, n_points=10**7, n_features=3, k_max=12)


def config_of(**sections):
    points = {"kind": "synthetic", "name": "swiss_roll", "n_points": 10}
    return check_config({"input": points, "output": {"store": "x"}, **sections}, "test")


@pytest.mark.parametrize("answer", [True, False])
def test_the_first_process_decides_whether_more_pairs_are_needed(solved, monkeypatch, answer):
    vectors = np.random.default_rng(0).normal(size=(N, 2))
    calls = []

    def suffice(self, sizes, sample):
        calls.append(sample)
        return answer

    monkeypatch.setattr(shared_solve.Coordinates, "suffice", suffice)

    def decided(group):
        rows = in_group(group, N, CUT)
        wanted = job(solved, n_neighbors=10)
        return shared_solve._suffice(solved, wanted, np.arange(N), vectors[rows.start : rows.stop], rows)

    assert in_threads(3, decided) == [answer] * 3
    [sample] = calls
    np.testing.assert_array_equal(sample, vectors)  # all points are sampled


@pytest.mark.parametrize(("kind", "place"), [("slurm", "driver"), ("local", "high-memory worker")])
def test_the_driver_runs_the_group(kind, place):
    """A worker would wait for itself."""
    solver = {"n_components": 2, "max_memory": "8GiB"}
    sections = {"eigensolver": solver, "execution": {"cluster": {"kind": kind, "workers": 16}}}
    stage = solve_embedding.steps(config_of(**sections), LAYOUT)
    next(stage)
    assert stage.send([solve_embedding.ChosenComponents(1, 1, [0])]).runs_on == place


def needed(**sections):
    """Whether the workers solve for 10^7 points, and the planned GiB."""
    n_bytes, on_workers = solve_embedding._solve_bytes(config_of(**sections), LAYOUT)
    return on_workers, n_bytes / 2**30


SLURM = {"cluster": {"kind": "slurm", "workers": 16}}


@pytest.mark.parametrize(
    ("sections", "on_workers"),
    [
        ({"execution": SLURM, "eigensolver": {"n_components": 2, "max_memory": "8GiB"}}, True),
        ({"execution": SLURM, "eigensolver": {"n_components": 2, "max_memory": "64GiB"}}, False),
        ({"execution": SLURM, "eigensolver": {"n_components": 2, "max_memory": "8GiB", "method": "factored"}}, False),
        ({"execution": SLURM, "eigensolver": {"n_components": 2, "max_memory": "8GiB"}, "method": "ltsa"}, False),
        ({"eigensolver": {"n_components": 2, "max_memory": "8GiB"}}, False),
        ({"execution": {"cluster": {"kind": "kubernetes", "workers": 16, "high_memory": "8GiB"}}}, True),
        # the solver may use 7.3 GiB of it, and needs 8.1
        ({"execution": {"cluster": {"kind": "kubernetes", "workers": 16, "high_memory": "9GiB"}}}, True),
        ({"execution": {"cluster": {"kind": "kubernetes", "workers": 16, "high_memory": "64GiB"}}}, False),
        ({"execution": {"cluster": {"kind": "kubernetes", "workers": 16}}}, False),
    ],
)
def test_workers_solve_where_no_process_has_the_memory(sections, on_workers):
    found, gib = needed(**sections)
    assert found == on_workers
    assert gib < 3 if on_workers else gib > 8


def test_no_process_needs_more_than_8_gib_for_100_000_000_points():
    per_process = [shared_bytes(10**8, 13, 10, 2, n_workers) / 2**30 for n_workers in (32, 64, 128, 256, 1000)]
    assert per_process == sorted(per_process, reverse=True)
    assert per_process[1] < 8
    assert per_process[-1] == per_process[-2]  # a process has a cut at least
