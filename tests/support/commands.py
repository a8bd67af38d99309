"""Commands of `lle` called in this process, and the config files they read."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import yaml
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.storage.objects import open_objects
from lle.storage.store import Store

FEW = {"quality": {"sample": 50}, "neighbors": {"n_neighbors": 8}, "graph": {"min_component": 20}}
UNMET = ("--set", "eigensolver.method=multigrid", "--set", "eigensolver.max_steps=1")


def write_config(folder: Path, **sections) -> Path:
    """A serial run without pictures and with scikit-learn's reg, unless the sections change this."""
    output = {"store": str(folder / "run.zarr"), "report": False}
    config = {"output": output, "execution": {"cluster": {"kind": "serial"}}, "weights": {"reg": 1e-3}}
    for name, section in sections.items():
        config[name] = {**config.get(name, {}), **section} if isinstance(section, dict) else section
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def npy_config(folder: Path, points: np.ndarray, **sections) -> Path:
    """As `write_config`, for points that are saved as x.npy."""
    np.save(folder / "x.npy", points)
    return write_config(folder, input={"kind": "npy", "path": str(folder / "x.npy")}, **sections)


def lle(*arguments: str) -> dict:
    """Run the command in this process; its JSON. Fails with everything it printed when the exit code is not 0."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.strip().splitlines()[-1])


def roll_store(folder: Path, n_points: int) -> Store:
    """The store of a serial run of a Swiss roll."""
    lle("run", write_config(folder, input={"kind": "synthetic", "name": "swiss_roll", "n_points": n_points, "seed": 3}))
    return Store(str(folder / "run.zarr"))


def start(config: Path, *arguments: str, program=("-m", "lle"), **options) -> subprocess.Popen:
    """`lle run` in a process group of its own; `options` are those of Popen."""
    command = [sys.executable, *program, "run", str(config), "--json", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes, **options)


def wait_for_block(process: subprocess.Popen, store: str | Path, stage: str) -> None:
    """Wait until a stage of a run has finished a block."""
    objects, deadline = open_objects(str(store)), time.monotonic() + 600  # long, because a loaded machine may be slow
    while not objects.names(f"_done/{stage}"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def refused(code: int, *arguments) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout.strip().splitlines()[-1])["message"]
