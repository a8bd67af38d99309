"""A nightly job; tests run it several times to make versions."""

from collections.abc import Callable
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
def job(tmp_path, points, toy_stages):
    """`job(**output)`: the config of a nightly run of toy stages over a zarr array, root tmp_path/run.zarr."""
    return nightly_job(tmp_path, points)


@pytest.fixture
def real_job(tmp_path, points):
    """The same with the real stages."""
    return nightly_job(tmp_path, points)


def nightly_job(folder: Path, points: np.ndarray) -> Callable[..., Path]:
    put_input(folder, points)

    def make(**output) -> Path:
        return write_config(
            folder,
            input={"kind": "zarr", "url": str(folder / "in.zarr"), "array": "points"},
            output={"keep": 3, "report": False, **output},
            execution={"block_points": BLOCK},
            **FEW,
        )

    return make
