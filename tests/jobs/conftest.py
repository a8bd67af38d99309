"""A nightly job, whose versions tests make one after the other."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.commands import FEW, write_config
from tests.support.nightly import BLOCK, N, put_input
from tests.support.points import swiss_roll


@pytest.fixture
def points() -> np.ndarray:
    return swiss_roll(N, np.random.default_rng(67))


@pytest.fixture
def job(tmp_path, points):
    """`job(**output)`: the config of a nightly run over a zarr array of 100-row chunks, root tmp_path/run.zarr."""
    put_input(tmp_path, points)

    def make(**output) -> Path:
        return write_config(
            tmp_path, input={"kind": "zarr", "url": str(tmp_path / "in.zarr"), "array": "points"},
            output={"keep": 3, "report": False, **output}, execution={"block_points": BLOCK}, **FEW,
        )  # fmt: skip

    return make
