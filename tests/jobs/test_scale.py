"""A million points: digits that float64 could lose, and the cost. Run by hand (`pytest -m manual`): some minutes."""

import numpy as np
import pytest

from lle.storage.store import Store
from tests.support.commands import lle, write_config

pytestmark = pytest.mark.manual


def test_a_million_points_keep_their_digits(tmp_path):
    n = 1_000_000
    config = write_config(
        tmp_path,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": n},
        execution={"cluster": {"kind": "local"}},
    )
    metrics = lle("run", config)["metrics"]
    store = Store(str(tmp_path / "run.zarr"))
    Y = store.read_all("embedding")[store.read_all("original_index")]
    squares = np.zeros(Y.shape[1])
    for start in range(0, n, 100_000):
        N, W = (store.read(name, start, start + 100_000) for name in ("neighbor_indices", "weights"))
        squares += ((Y[start : start + 100_000] - np.einsum("nk,nkm->nm", W, Y[N])) ** 2).sum(axis=0)
    np.testing.assert_allclose(squares / (Y**2).sum(axis=0), store.read_all("eigenvalues")[0], rtol=1e-6)
    assert metrics["eigenvalues"][0][0] < 1e-12
    assert metrics["recall"]["value"] == 1.0
    assert max(metrics["peak_bytes"].values()) < 8e9
