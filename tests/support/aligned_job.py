"""A job on an array of points that a test replaces between runs, with or without alignment."""

import json
import os

import numpy as np
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.storage.store import Store
from tests.support.commands import lle, write_config

SECTIONS = {
    "output": {"report": False},
    "graph": {"min_component": 20},
    "execution": {"block_points": 500},
    "quality": {"sample": 50},
}


class Job:
    """A job on an array of points that a test replaces between its runs."""

    def __init__(self, folder, points, **sections):
        folder.mkdir(exist_ok=True)
        self.path, self.store = folder / "x.npy", Store(str(folder / "run.zarr"))
        self.put(points)
        source = {"kind": "npy", "path": str(self.path)}
        merged = {name: {**SECTIONS.get(name, {}), **sections.get(name, {})} for name in {*SECTIONS, *sections}}
        self.config = write_config(folder, input=source, **merged)

    def put(self, points) -> None:
        np.save(self.path, points)
        os.utime(self.path, (1, 10**6 + len(points)))

    def run(self, *overrides: str) -> dict:
        return lle("run", self.config, *(part for text in overrides for part in ("--set", text)))

    def fails(self, code: int, *overrides: str) -> str:
        sets = [part for text in overrides for part in ("--set", text)]
        result = CliRunner().invoke(app, ["run", str(self.config), *sets])
        assert result.exit_code == code, result.output
        return result.output

    def embedding(self) -> np.ndarray:
        return Store(self.store.url).read_all("embedding")

    def alignment(self) -> dict:
        return json.loads(self.store.objects.get("report/metrics.json"))["alignment"]


def rms(difference: np.ndarray) -> float:
    return float(np.sqrt(np.square(difference).mean()))
