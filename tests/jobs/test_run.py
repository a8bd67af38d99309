"""Choices of a run before its first step, and continuing an eigensolve that stopped at its limit."""

import contextlib
import io
import sys
import threading

import numpy as np
import pytest

from lle.config.models import Cluster, Config, KubernetesCluster
from lle.core.errors import BoundsNotMet, ConfigError
from lle.engine.progress import RunProgress
from lle.engine.step import DRIVER, WHOLE_DATA, WORKER
from lle.engine.task_costs import where
from lle.jobs import run_stages
from lle.jobs.run import run
from lle.linalg.solver_progress import saved_heads
from lle.stages import solve_embedding
from lle.storage import lock
from lle.storage.lock import RunLock
from lle.storage.store import Store
from lle.storage.versions import Versions
from tests.support.points import swiss_roll
from tests.support.steps import make_step


def s_curve(store: str, n_points: int, **sections) -> Config:
    """A run on an S-curve."""
    output = {"store": store, "report": False, **sections.pop("output", {})}
    source = {"kind": "synthetic", "name": "s_curve", "n_points": n_points}
    return Config.model_validate({"input": source, "output": output, **sections})


def test_whole_data_steps_run_on_the_driver_or_high_memory_worker():
    steps = [make_step("s.n", runs_on=place) for place in (WORKER, WHOLE_DATA, DRIVER)]
    results = []
    for cluster in (
        Cluster(),
        KubernetesCluster(kind="kubernetes"),
        Cluster(kind="address", address="tcp://x:1", memory_resource="BIG"),
    ):
        config = s_curve("y", 450, execution={"cluster": cluster})
        results.append([where(step, config) for step in steps])
    assert results == [["worker", "driver", "driver"], *2 * [["worker", "high-memory worker", "driver"]]]


@pytest.mark.parametrize("resource", [None, "BIG"])
def test_a_missing_gpu_of_this_process_stops_the_run_before_its_first_stage(tmp_path, monkeypatch, resource):
    class Started(Exception):
        pass

    def start(*arguments):
        raise Started

    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(run_stages, "executing", start)
    store = Store(str(tmp_path / "store.zarr"))
    cluster = Cluster(kind="address", address="tcp://x:1", memory_resource=resource)
    solver = {"method": "multigrid", "device": "gpu"}
    config = s_curve(store.url, 450, eigensolver=solver, execution={"cluster": cluster})
    with pytest.raises(Started if resource else ConfigError) as stopped:
        run(config, False, RunProgress(io.StringIO()))
    assert resource or str(stopped.value).startswith("eigensolver.device: gpu needs the extra gpu")
    assert store.is_run() == bool(resource)


@pytest.mark.slow
def test_higher_max_steps_continues_the_iteration_and_updates_later_steps(tmp_path):
    results = {}
    for name, limits in {"undisturbed": (60,), "limited": (1, 2, 60)}.items():
        store = Store(str(tmp_path / f"{name}.zarr"))
        for limit in limits:
            config = s_curve(store.url, 450, eigensolver={"method": "multigrid", "max_steps": limit})
            if limit == 60:
                run(config, False, RunProgress(io.StringIO()))
                continue
            with pytest.raises(BoundsNotMet, match=rf"max_steps \(now {limit}\): the next run continues"):
                run(config, False, RunProgress(io.StringIO()))
            [head] = saved_heads(store, "_work/eigen")
            assert 0 < head.n_steps <= limit
        assert not saved_heads(store, "_work/eigen")
        solver = store.get_json("report/metrics.json")["solver"]
        results[name] = (store.read_all("embedding").tobytes(), solver["n_steps"])
    assert results["limited"] == results["undisturbed"]


def test_converged_component_is_not_solved_again(tmp_path, monkeypatch):
    """Two separate rolls: the small one converges within the limit that stops the large one."""
    monkeypatch.setattr(solve_embedding, "POINTS_TOGETHER", 500)
    rng = np.random.default_rng(7)
    points = np.concatenate([swiss_roll(700, rng), swiss_roll(300, rng) + 500.0])
    np.save(tmp_path / "x.npy", points)
    computed = []
    for limit in (1, 60):
        config = Config.model_validate(
            {
                "input": {"kind": "npy", "path": str(tmp_path / "x.npy")},
                "weights": {"reg": 1e-3},
                "eigensolver": {"method": "multigrid", "max_steps": limit},
                "output": {"store": str(tmp_path / "run.zarr"), "report": False},
            }
        )
        progress = RunProgress(io.StringIO())
        if limit == 1:
            with pytest.raises(BoundsNotMet, match="component 0") as unmet:
                run(config, False, progress)
            assert "component 1" not in str(unmet.value)
        else:
            run(config, False, progress)
        computed.append(progress.computed["solve_embedding"])
    assert computed[1] == computed[0] - 2  # not repeated: the choice of the components, and the pairs of the small one


def test_waits_for_the_lock_and_publishes_before_its_cluster_closes(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "POLL_SECONDS", 0.02)
    execution = {"lock_wait": 60, "cluster": {"kind": "serial"}}
    config = s_curve(str(tmp_path / "root"), 200, output={"keep": 1}, execution=execution)
    root, pointers = Versions(config.output.store), []

    @contextlib.contextmanager
    def cluster(section):
        pointers.append(root.pointer())
        yield None
        pointers.append(root.pointer())

    monkeypatch.setattr(run_stages, "connect", cluster)
    holder, log = RunLock(root.store), io.StringIO()
    holder.__enter__()
    timer = threading.Timer(0.5, holder.__exit__)
    timer.start()
    result = run(config, False, RunProgress(log))
    timer.join()
    assert "another run holds this store" in log.getvalue()
    assert "Waiting for at most 60 s" in log.getvalue()
    assert [pointer and pointer.version for pointer in pointers] == [None, result.version]
