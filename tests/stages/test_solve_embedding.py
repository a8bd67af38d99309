"""Solving in a process that may die: another method is used, and a killed iteration continues with the same bytes."""

import multiprocessing
import os
import re
import signal
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lle.cli.output import describe_status
from lle.core.errors import LleError, NotEnoughMemory, StageIncomplete
from lle.core.machine import is_compiled
from lle.engine import checkpoint, subprocess_call
from lle.engine.task_costs import TASK_BYTES
from lle.jobs import plan_preview, status
from lle.kernels.eigensolver import multigrid_inverse
from lle.kernels.eigensolver.costs import least_bytes, multigrid_size
from lle.kernels.eigensolver.davidson import SubspaceState
from lle.kernels.eigensolver.problem import SolverProgress
from lle.linalg import component_solve, preprocess, solver_checkpoint, solver_progress
from lle.stages import solve_embedding
from lle.storage import array_specs
from lle.storage.blocks import Blocks
from lle.storage.store import Store
from tests.support.commands import lle, npy_config, refused, roll_store, write_config
from tests.support.plans import config_of, make_layout
from tests.support.points import swiss_roll
from tests.support.sampled_factors import roll_factor
from tests.support.stored import flip

N = 900
PLENTY = 2**30


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    return roll_store(tmp_path_factory.mktemp("solved"), N)


def solve(store, method="auto", max_memory=PLENTY, tol=1e-8):
    settings = "lle", 2, method, tol, Blocks(N, N), max_memory, 60, True
    [solution] = solve_embedding.solve_components(store, 0, (0, 1), *settings).components
    return solution, store.read_bundle("_work/eigen/00000")


def killed_in_factored(send_progress, job):
    if "factored" not in job.skip:
        send_progress("factored")
        os.kill(os.getpid(), signal.SIGKILL)
    return component_solve.solve_here(send_progress, job)


def killed_once(send_progress, job):
    flag = Path(job.url).parent / "killed"
    if not flag.exists():
        flag.touch()
        send_progress("factored")
        os.kill(os.getpid(), signal.SIGKILL)
    return component_solve.solve_here(send_progress, job)


def killed_always(send_progress, job):
    send_progress("shift_invert" if "factored" in job.skip else "factored")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["lle", pytest.param("ltsa", marks=pytest.mark.slow)])
def test_components_solved_together_have_the_same_bytes(tmp_path, monkeypatch, method):
    rng = np.random.default_rng(5)
    parts = [swiss_roll(n, rng) + 500.0 * i for i, n in enumerate((260, 500, 120, 500, 90))]
    points, results = np.concatenate(parts)[rng.permutation(1470)], {}
    for together, n_blocks, planned in ((1, 5, 5), (300, 4, 5), (10_000, 1, 1)):
        monkeypatch.setattr(solve_embedding, "POINTS_TOGETHER", together)
        (folder := tmp_path / str(together)).mkdir()
        arguments = npy_config(folder, points), "--set", f"method={method}", "--set", "execution.block_points=256"
        result = lle("run", *arguments)
        assert result["blocks_computed"]["solve_embedding"] == n_blocks + 2
        assert result["metrics"]["component_points"] == [500, 500, 260, 120, 90]
        solved = [result["metrics"][key] for key in ("eigenvalues", "coordinates", "participation")]
        store = Store(str(folder / "run.zarr"))
        plan = lle("plan", *arguments, "--set", "weights.reg=1e-2")["steps"]  # ltsa has no reg, so its tasks are known
        tasks = [step["tasks"] for step in plan if (step["stage"], step["step"]) == ("solve_embedding", "solve")]
        assert tasks == [planned if method == "lle" else n_blocks]
        results[together] = [*(store.read_all(name).tobytes() for name in ("embedding", "component")), solved]
    assert results[1] == results[300] == results[10_000]


def test_damage_of_a_component_is_found_in_the_task_that_solved_it(tmp_path, monkeypatch):
    """Its number is not that of the task: tasks 0 to 2 solve the components 0, 1 and 2 to 4."""
    monkeypatch.setattr(solve_embedding, "POINTS_TOGETHER", 300)
    rng = np.random.default_rng(5)
    config = npy_config(tmp_path, np.concatenate([swiss_roll(n, rng) + 500.0 * n for n in (400, 350, 90, 80, 70)]))
    store = Store(lle("run", config)["store"])
    store.objects.delete("_work/eigen/00003.npz")
    message = refused(1, "verify", store.url)
    assert "marked as not done: block 2 of solve_embedding.solve" in message
    assert lle("run", config)["blocks_computed"]["solve_embedding"] == 1
    assert lle("verify", store.url)["damaged"] == 0


@pytest.mark.slow
def test_separate_process_gives_the_same_bytes(solved, monkeypatch):
    report, bundle = solve(solved)
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    isolated_report, isolated_bundle = solve(solved)
    assert isolated_report.subprocess_bytes > 2**24
    assert replace(isolated_report, subprocess_bytes=0) == report
    assert {name: values.tobytes() for name, values in isolated_bundle.items()} == {
        name: values.tobytes() for name, values in bundle.items()
    }


@pytest.mark.parametrize("isolated_points", [pytest.param(1, marks=pytest.mark.slow), 10 * N])
def test_the_store_of_the_task_lists_the_eigenvectors(solved, monkeypatch, isolated_points):
    """`lle verify` finds out by this list that they are missing."""
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", isolated_points)
    store = Store(solved.url)
    solve(store)
    assert store.bundles_written == {"_work/eigen/00000"}


@pytest.mark.parametrize("isolated_points", [pytest.param(1, marks=pytest.mark.slow), 10 * N])
def test_a_solve_that_was_interrupted_writes_nothing(solved, monkeypatch, isolated_points):
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", isolated_points)

    def refuse():
        raise StageIncomplete("the run was interrupted")

    before, store = solved.objects.get("_work/eigen/00000.npz"), Store(solved.url)
    store.before_write = refuse
    with pytest.raises(StageIncomplete, match="interrupted"):
        solve(store, tol=1e-4)
    assert solved.objects.get("_work/eigen/00000.npz") == before


def test_a_daemonic_process_solves_with_the_store_of_the_task(solved, monkeypatch):
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    store = Store(solved.url)

    def refuse():
        raise StageIncomplete("the run was interrupted")

    store.before_write = refuse
    with pytest.raises(StageIncomplete):
        solve(store)


@pytest.fixture
def out_of_memory(tmp_path, monkeypatch):
    """Linux counts each look as one more process that it killed for lack of memory."""

    class Counts:
        def __init__(self):
            self.count = 0

        def read_text(self):
            self.count += 1
            return f"pgfault 3\noom_kill {self.count}\n"

    monkeypatch.setattr(subprocess_call, "VMSTAT", Counts())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "factored"])
def test_the_same_method_starts_again_if_another_program_killed_it(solved, monkeypatch, capsys, method):
    """The report and the bytes are those of an undisturbed solve."""
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    expected, bundle = solve(solved, method)
    monkeypatch.setattr(component_solve, "solve_here", killed_once)
    (Path(solved.url).parent / "killed").unlink(missing_ok=True)
    report, again = solve(solved, method)
    assert "SIGKILL in factored, not for lack of memory; it is started again" in capsys.readouterr().err
    assert report.stats == expected.stats
    assert again["vectors"].tobytes() == bundle["vectors"].tobytes()


@pytest.mark.slow
def test_a_method_killed_at_each_try_is_replaced_and_the_report_says_so(solved, monkeypatch):
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    monkeypatch.setattr(component_solve, "solve_here", killed_in_factored)
    stats = solve(solved)[0].stats
    assert stats["method"] == "shift_invert"
    assert stats["killed"] == "factored was tried and its process ended by SIGKILL"


@pytest.mark.slow
def test_next_method_is_used_after_one_ran_out_of_memory(solved, monkeypatch, out_of_memory):
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    expected = solve(solved)[0].eigenvalues
    monkeypatch.setattr(component_solve, "solve_here", killed_in_factored)
    report, _ = solve(solved)
    assert report.stats["method"] == "shift_invert"
    assert "factored was tried and its process ended by SIGKILL" in report.stats["reason"]
    np.testing.assert_allclose(report.eigenvalues, expected, rtol=1e-6)


@pytest.mark.slow
def test_killed_replacement_of_a_requested_method_is_replaced_too(solved, monkeypatch, out_of_memory):
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    monkeypatch.setattr(component_solve, "solve_here", killed_in_factored)  # as after a singular factor of shift_invert
    assert solve(solved, "shift_invert")[0].stats["method"] == "shift_invert"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "factored"])
def test_process_killed_in_every_method_is_reported_as_out_of_memory(solved, monkeypatch, method, out_of_memory):
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    monkeypatch.setattr(component_solve, "solve_here", killed_always)
    with pytest.raises(NotEnoughMemory, match=r"SIGKILL.*max_memory") as failure:
        solve(solved, method)
    assert failure.value.exit_code == 2
    with pytest.raises(NotEnoughMemory) as failure:
        solve(solved, method, "auto")
    assert failure.value.exit_code == 1


@pytest.mark.slow
def test_process_that_another_program_always_kills_is_an_error_that_a_retry_may_cure(solved, monkeypatch):
    monkeypatch.setattr(component_solve, "ISOLATED_POINTS", 1)
    monkeypatch.setattr(component_solve, "solve_here", killed_always)
    with pytest.raises(LleError, match=r"SIGKILL in factored 3 times, .* another program ends it") as failure:
        solve(solved, "factored")
    assert (type(failure.value), failure.value.exit_code) == (LleError, 1)


@pytest.mark.parametrize("steps", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_iteration_continues_with_the_same_bytes(solved, monkeypatch, steps):
    monkeypatch.setattr(multigrid_inverse, "SOLVED", 0.3)  # more steps
    monkeypatch.setattr(multigrid_inverse, "LOCALISED", np.inf)
    monkeypatch.setattr(multigrid_inverse, "ACCURATE", np.inf)
    monkeypatch.setattr(multigrid_inverse, "REPEATED_CYCLES", 0)
    expected_report, expected = solve(solved, "multigrid", tol=1e-13)
    saved_steps = []

    class Killed(Exception):
        pass

    def keep_and_die(store, name):
        def keep(method, state, at_limit):
            solver_checkpoint.write_state(store, name, method, state)
            saved_steps.append(state.n_steps)
            if len(saved_steps) == steps:
                raise Killed

        return keep

    monkeypatch.setattr(component_solve, "state_saver", keep_and_die)
    with pytest.raises(Killed):
        solve(solved, "multigrid", tol=1e-13)
    monkeypatch.setattr(solver_checkpoint, "ROWS", 100)
    report, resumed = solve(solved, "multigrid", tol=1e-13)
    assert is_compiled(solve_embedding.COMPILATION.function), "the expected time would count its compilation"
    assert report == expected_report
    assert resumed["vectors"].tobytes() == expected["vectors"].tobytes()
    assert len(saved_steps) > steps  # it went on, and kept more states
    assert not solved.objects.names("_work/eigen/state-00000")


def test_status_shows_the_progress_of_the_eigensolver(solved, monkeypatch):
    """Vector error, products and time left while it works; nothing is left in the store at the end."""
    monkeypatch.setattr(solver_progress, "RECORD_SECONDS", 0.0)
    monkeypatch.setattr(status, "running", lambda store: True)
    statuses, record = [], SolverProgress._asdict

    def look(progress):
        statuses.append(describe_status(status.status(solved)))
        return record(progress)

    monkeypatch.setattr(SolverProgress, "_asdict", look)
    solve(solved, method="multigrid")
    line = r"^  multigrid: vector error \S+ \(to reach: \S+\) after [\d,]+ solves for 4 vectors(, about 1 s left)?$"
    assert re.search(line, statuses[-1], re.M)
    assert not solved.objects.names("_work/eigen/progress")
    assert status.status(solved)["solving"] == []


def state_of(n, n_steps, seed):
    vectors = np.random.default_rng(seed).standard_normal((n, 3))
    errors, previous_values = np.full(2, 0.1 * seed), np.arange(2.0)
    return SubspaceState(np.arange(3.0), vectors, n_steps, errors, previous_values, n_residual_steps=n_steps - 1)


def test_progress_of_a_killed_solver_is_deleted_before_the_next_one_has_any(tmp_path):
    store = Store(str(tmp_path))
    left = solver_progress.ProgressRecord("multigrid", "hierarchy", 0, None, None, 9.0, True, 0.0)
    store.put_record("_work/eigen/progress/00000.json", left)
    assert solver_progress.solver_state(store) is not None
    with solver_progress.recorded(store, 0):
        assert solver_progress.solver_state(store) is None


@pytest.mark.parametrize("rows", [7, 50, 100])
def test_new_state_replaces_the_old_and_is_read_back(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(solver_checkpoint, "ROWS", rows)
    store = Store(str(tmp_path))
    assert solver_checkpoint.read_state(store, "state", "multigrid", 50) is None
    for n_steps in (1, 2, 2, 5):
        store.write_bundle(f"state/{n_steps + 20}-0", rows=np.zeros((1, 3)))  # of a process killed before the head
        state = state_of(50, n_steps, n_steps)
        solver_checkpoint.write_state(store, "state", "multigrid", state)
        actual = solver_checkpoint.read_state(store, "state", "multigrid", 50)
        assert (actual.n_steps, actual.n_residual_steps) == (n_steps, n_steps - 1)
        assert actual.vectors.tobytes() == state.vectors.tobytes()
        assert actual.values.tobytes() == state.values.tobytes()
        assert actual.errors.tobytes() == state.errors.tobytes()
        [head] = solver_progress.saved_heads(store, "state")
        assert (head.method, head.values) == ("multigrid", [0.0, 1.0])
    assert len(store.objects.names("state")) == 2 + -(-50 // rows)
    assert solver_checkpoint.read_state(store, "state", "multigrid", 51) is None
    assert solver_checkpoint.read_state(store, "state", "multigrid on M", 50) is None
    store.objects.delete("state/head.json")
    solver_checkpoint.delete_state(store, "state")
    assert not store.objects.names("state")


def test_a_damaged_state_is_not_used(tmp_path):
    store = Store(str(tmp_path))
    solver_checkpoint.write_state(store, "state", "multigrid", state_of(50, 1, 1))
    flip(tmp_path / "state" / "1-0.npz")
    assert solver_checkpoint.read_state(store, "state", "multigrid", 50) is None


@pytest.mark.parametrize("n_blocks", [2**62, 0, -1])
def test_a_state_with_a_damaged_number_of_blocks_is_not_used_and_can_be_removed(tmp_path, n_blocks):
    store = Store(str(tmp_path))
    solver_checkpoint.write_state(store, "state", "multigrid", state_of(50, 1, 1))
    store.put_json("state/head.json", {**store.get_json("state/head.json"), "n_blocks": n_blocks})
    assert solver_checkpoint.read_state(store, "state", "multigrid", 50) is None
    solver_checkpoint.delete_state(store, "state")
    assert not store.objects.names("state")


def test_states_are_saved_at_least_two_minutes_apart(tmp_path, monkeypatch):
    store, clock = Store(str(tmp_path)), iter([0.0, 1.0, 121.0, 121.0, 130.0])
    monkeypatch.setattr(solver_checkpoint, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    save = solver_checkpoint.state_saver(store, "state")
    for n_steps in (1, 2, 3):
        save("multigrid", state_of(20, n_steps, 1), False)
    assert solver_checkpoint.read_state(store, "state", "multigrid", 20).n_steps == 2


@pytest.mark.slow
def test_plan_predicts_the_solver_if_the_weights_are_stored(solved, tmp_path):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": N, "seed": 3})
    planned = lle("plan", config, "--store", solved.url)
    assert planned["solver"]["basis"] == "an earlier run"
    actual = planned["solver"]
    changed = lle("plan", config, "--store", str(tmp_path / "none.zarr"))
    assert changed["solver"] is None
    assert lle("plan", config, "--store", solved.url, "--set", "weights.reg=0.1")["solver"] is None
    alone = lle("plan", config, "--store", solved.url, "--set", "eigensolver.method=multigrid")["solver"]
    assert (alone["method"], len(alone["routes"]), "basis" in actual) == ("multigrid", 1, True)
    cholesky = lle("plan", config, "--store", solved.url, "--set", "eigensolver.method=shift_invert")["solver"]
    assert cholesky["method"] == "shift_invert"
    assert cholesky["factor_nnz"] > actual["factor_nnz"]
    checkpoint.delete_markers(solved, "solve_embedding.solve")
    predicted = lle("plan", config, "--store", solved.url)["solver"]
    assert predicted["basis"] == "analysis"
    assert predicted["method"] == actual["method"] == "factored"
    assert predicted["factor_nnz"] == pytest.approx(actual["factor_nnz"], rel=0.05)  # another point is pinned
    assert predicted["seconds"] > 0


def test_plan_reuses_the_solver_of_an_earlier_run_of_the_same_input(tmp_path, monkeypatch):
    """Fingerprints of the plan decide, not the text of the config."""
    points = swiss_roll(400, np.random.default_rng(19))
    np.save(tmp_path / "x.npy", points)
    config = write_config(tmp_path, input={"kind": "npy", "path": str(tmp_path / "x.npy")})
    lle("run", config)
    walks, walk = [], plan_preview.Forecast.walk
    monkeypatch.setattr(plan_preview.Forecast, "walk", lambda *arguments: walks.append(1) or walk(*arguments))
    changed_plan = lle("plan", config, "--set", "neighbors.min_recall=0.5", "--set", "quality.sample=20")
    assert changed_plan["solver"]["basis"] == "an earlier run"
    assert len(walks) == 1
    np.save(tmp_path / "x.npy", points[::-1])
    os.utime(tmp_path / "x.npy", (1, 2))
    assert lle("plan", config)["solver"] is None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ltsa", "laplacian"])
def test_plan_predicts_the_solver_of_other_methods(tmp_path, family):
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "s_curve", "n_points": 600})
    method = ("--set", f"method={family}")
    lle("run", config, *method)
    actual = lle("plan", config, *method)["solver"]
    assert (actual["basis"], actual["method"]) == ("an earlier run", "shift_invert")
    predicted = lle("plan", config, *method, "--set", "eigensolver.tol=1e-7")["solver"]
    assert (predicted["basis"], predicted["method"]) == ("analysis", "shift_invert")
    assert predicted["factor_nnz"] == pytest.approx(actual["factor_nnz"], rel=0.1)


@pytest.mark.parametrize(("n", "m"), [(900, 2), (1500, 9)])
def test_multigrid_fits_the_smallest_planned_bytes(n, m):
    A = roll_factor(n, 3)
    allowed = least_bytes(n, 13, m, square=True) + 4 * (n + 1)  # the pointers of the rows
    width, columns, predicted_bytes, _ = multigrid_size(A, m, allowed)
    assert columns == 3 * width
    assert allowed - 64 * n < predicted_bytes <= allowed


def peak_of(compute):
    """The largest memory of all arrays while something is computed."""
    tracemalloc.start()
    try:
        compute()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_projection_makes_at_most_three_copies_of_the_scores(tmp_path, monkeypatch):
    n, m = 300_000, 3
    store = Store(str(tmp_path / "run.zarr"))
    store.create_group({})
    store.create(array_specs.POINTS.sized(Blocks(n, 2**14), m, dtype="float64"))
    store.write("points", 0, np.random.default_rng(3).normal(size=(n, m)))
    monkeypatch.setattr(preprocess, "CHUNK_BYTES", 2**18)
    project = partial(solve_embedding.project_points, store, 0, m, m, 1e-8, Blocks(n, 2**14))
    project()  # imports Dask
    assert peak_of(project) < 32 * n * m


@pytest.mark.parametrize("align", [None, "previous"])
def test_the_planned_bytes_of_the_write_are_enough(tmp_path, align):
    n, m = 16_000, 10
    points = np.random.default_rng(3).normal(size=(n, m))
    sections = {"embedding": {"align": align}, "eigensolver": {"n_components": m}, "quality": {"sample": 50}}
    job = npy_config(tmp_path, points, **sections), "--set", "method=pca"
    lle("run", *job)
    planned = {f"{step['stage']}.{step['step']}": step["bytes_per_task"] for step in lle("plan", *job)["steps"]}
    store = Store(str(tmp_path / "run.zarr"))
    peak = peak_of(
        lambda: solve_embedding.write_embedding(store, 0, m, m, 1, "scores", Blocks(n, n), align is not None, False)
    )
    assert peak <= planned["solve_embedding.write"] - TASK_BYTES < 1.5 * peak


def test_forecast_of_pca_takes_the_smaller_side_of_the_table():
    config = config_of(method="pca")
    sizes = ((10_000, 100), (100, 10_000))
    tall, wide = (replace(make_layout(config), n_points=n, n_features=d) for n, d in sizes)
    assert solve_embedding.project_step(config, tall).work == solve_embedding.project_step(config, wide).work
