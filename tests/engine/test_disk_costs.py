"""Bytes that each step writes to the disk, compared with its plan."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.config.load import load_config
from lle.core.errors import gib
from lle.engine.disk_costs import REPORT_BYTES
from lle.engine.progress import RunProgress
from lle.engine.step import Step
from lle.jobs import run as runs
from tests.support.commands import lle, write_config

N, PAGE = 4000, 4096
BLOCKS = {
    "execution": {"block_points": 1000, "cluster": {"kind": "serial"}},
    "output": {"report": False},
    "quality": {"sample": 100},
}
CASES = {
    "tree": (3, {"neighbors": {"method": "kdtree"}}),
    "brute": (40, {"neighbors": {"method": "brute"}, "preprocess": {"scale": "standard", "pca": 20}}),
    "groups": (60, {"neighbors": {"method": "pynndescent", "min_recall": 0.97}, "execution": {"block_points": 250}}),
    "reverse": (30, {"neighbors": {"method": "brute", "reverse": 3}}),
    "radius": (3, {"neighbors": {"radius": 0.5, "k_min": 5, "k_max": 30}}),
    "multigrid": (5, {"eigensolver": {"method": "multigrid", "tol": 1e-2}, "weights": {"reg": 0.1}}),
    "modified": (12, {}),
    "ltsa": (12, {}),
    "hessian": (12, {}),
    "laplacian": (12, {}),
    "pca": (12, {}),
}


def data(n: int, d: int) -> np.ndarray:
    """Points in many dimensions, with neighbours in many blocks."""
    return np.random.default_rng(d).normal(size=(n, d))


def sections(folder: Path, name: str) -> Path:
    d, of_case = CASES[name]
    np.save(folder / "x.npy", data(N, d))
    path = write_config(
        folder,
        input={"kind": "npy", "path": str(folder / "x.npy")},
        **{section: {**BLOCKS.get(section, {}), **of_case.get(section, {})} for section in {*BLOCKS, *of_case}},
    )
    if name in {"modified", "ltsa", "hessian", "laplacian", "pca"}:
        path.write_text(f"{path.read_text()}method: {name}\n")
    return path


class Keep(RunProgress):
    """Records the steps of a run."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.steps: list[Step] = []

    def begin(self, step: Step, n_done: int, state: Callable[[], object] | None = None) -> None:
        super().begin(step, n_done, state)
        self.steps.append(step)


def on_disk(folder: Path) -> int:
    """Bytes of the pages that the files in a folder, or a file, take."""
    files = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    return sum(-(-path.stat().st_size // PAGE) * PAGE for path in files)


def left(store: Path, step: Step) -> int:
    return sum(on_disk(store / name) for name in step.bundles)


def check_steps(steps: list[Step], store: Path) -> None:
    """A later round may write under the same names; then the plan of the last round counts."""
    last = {tuple(step.bundles): step for step in steps if step.bundles}
    assert {step.name for step in last.values() if left(store, step) > sum(step.bundles.values())} == set()
    assert any(left(store, step) for step in last.values())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "tree" else pytest.mark.slow) for name in CASES]
)
def test_no_step_writes_more_than_planned(tmp_path, name):
    config = sections(tmp_path, name)
    planned = lle("plan", config)
    progress = Keep()
    runs.run(load_config(config), False, progress)
    store = tmp_path / "run.zarr"
    check_steps(progress.steps, store)
    bytes_used = on_disk(store) - on_disk(store / "_done") - on_disk(store / "_run")
    assert planned["array_bytes"] < bytes_used < planned["disk_bytes_at_end"] <= planned["disk_bytes"]
    assert planned["disk_bytes_at_end"] - REPORT_BYTES < 8 * bytes_used
    assert lle("plan", config)["disk_bytes"] <= planned["disk_bytes"]


def test_plan_prints_disk_and_array_bytes(tmp_path):
    plan = lle("plan", config := sections(tmp_path, "tree"))
    assert plan["disk_bytes_at_end"] <= plan["disk_bytes"] < sum(step["disk_bytes"] for step in plan["steps"])
    text = CliRunner().invoke(app, ["plan", str(config)]).output
    assert f"{gib(plan['array_bytes'])} of it arrays" in text
    assert f"at most {gib(plan['disk_bytes'])} during the run and {gib(plan['disk_bytes_at_end'])} at its end" in text
