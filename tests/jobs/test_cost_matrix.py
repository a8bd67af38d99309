"""Runs that do not store M (`output.cost_matrix: false`)."""

import io

import numpy as np
import pytest

from lle.config.models import Config
from lle.engine.progress import RunProgress
from lle.jobs.plan_preview import plan_summary
from lle.jobs.run import run
from lle.jobs.status import status
from lle.storage.store import Store
from tests.support.points import swiss_roll


def settings(folder, name, **keys) -> Config:
    np.save(folder / "x.npy", swiss_roll(600, np.random.default_rng(53)))
    return Config.model_validate(
        {
            "method": keys.get("method", "lle"),
            "input": {"kind": "npy", "path": str(folder / "x.npy")},
            "output": {"store": str(folder / name), "report": False, "cost_matrix": keys.get("cost_matrix", True)},
            "eigensolver": {"method": keys.get("solver", "auto")},
            "weights": {"reg": 1e-3},
            "quality": {"sample": 50},
            "execution": {"cluster": {"kind": "serial"}, "block_points": 150},
        }
    )


def run_job(config: Config) -> Store:
    run(config, False, RunProgress(io.StringIO()))
    return Store(config.output.store)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "solver"),
    [
        ("lle", "shift_invert"),
        pytest.param("lle", "auto", marks=pytest.mark.slow),
        pytest.param("laplacian", "shift_invert", marks=pytest.mark.slow),
    ],
)
def test_embedding_is_the_same_without_a_stored_cost_matrix(tmp_path, method, solver):
    stored, computed = (
        run_job(settings(tmp_path, name, method=method, solver=solver, cost_matrix=name == "with"))
        for name in ("with", "without")
    )
    tolerance = 0.0 if solver == "auto" else 1e-7  # M in memory is another sum of the same terms
    np.testing.assert_allclose(computed.read_all("embedding"), stored.read_all("embedding"), rtol=0, atol=tolerance)
    assert computed.get_json("report/metrics.json")["solver"]["method"] == {"auto": "factored"}.get(solver, solver)
    assert stored.objects.names("cost_matrix")
    assert computed.objects.names("cost_matrix") == computed.objects.names("_work/contributions") == []
    assert computed.get_json("report/metrics.json")["nnz_cost_matrix"] is None
    assert "assemble_cost" not in status(computed)["stages"]
    assert status(computed)["state"] == "done"


@pytest.mark.slow
def test_cost_matrix_is_deleted_when_the_key_becomes_false_and_computed_when_it_becomes_true(tmp_path):
    store = run_job(settings(tmp_path, "run"))
    before = store.read_all("embedding")
    run_job(settings(tmp_path, "run", cost_matrix=False))
    assert store.objects.names("cost_matrix") == store.objects.names("_work/contributions") == []
    run_job(settings(tmp_path, "run"))
    assert store.get_json("report/metrics.json")["nnz_cost_matrix"] > 0
    np.testing.assert_array_equal(store.read_all("embedding"), before)


def test_plan_leaves_out_the_cost_matrix_and_predicts_the_solver_of_a_run_without_it(tmp_path):
    with_m, without = (plan_summary(settings(tmp_path, "run", cost_matrix=value)) for value in (True, False))
    assert "assemble_cost" in {step["stage"] for step in with_m["steps"]}
    assert "assemble_cost" not in {step["stage"] for step in without["steps"]}
    assert without["disk_bytes"] < with_m["disk_bytes"]
    config = settings(tmp_path, "run", cost_matrix=False)
    run_job(config)
    assert plan_summary(config)["solver"]["method"] in {"dense", "factored"}
