"""The whole job on real data beside the checkout: minutes and gigabytes, so run by hand (`pytest -m manual`)."""

import numpy as np
import pytest

from lle.storage.store import Store
from tests.support.commands import lle, write_config

pytestmark = pytest.mark.manual


def test_mnist(tmp_path, shared_data):
    images = shared_data("mnist/train-images-idx3-ubyte.gz").parent
    config = write_config(
        tmp_path,
        input={"kind": "idx", "path": f"{images}/*-images-idx3-ubyte.gz", "labels": f"{images}/*-labels-idx1-ubyte.gz"},
        neighbors={"n_neighbors": 12, "min_recall": 0.97},
        eigensolver={"n_components": 5},
        execution={"cluster": {"kind": "local"}},
    )
    metrics = lle("run", config)["metrics"]
    assert metrics["recall"]["value"] >= 0.97
    # Eigenvalues depend on the graph: those of graphs of this recall differ by a few %; the exact one has 1.61e-6.
    np.testing.assert_allclose(metrics["eigenvalues"][0], [1.43e-6, 3.82e-6, 4.09e-6, 6.66e-6, 1.65e-5], rtol=0.05)
    assert metrics["trustworthiness"]["low"] > 0.9


def test_mnist_with_exact_neighbors_has_known_eigenvalues(tmp_path, shared_data):
    """Eigenvalues of the exact graph; those of approximate graphs differ by a few per cent."""
    images = shared_data("mnist/train-images-idx3-ubyte.gz").parent
    config = write_config(
        tmp_path,
        input={"kind": "idx", "path": f"{images}/*-images-idx3-ubyte.gz"},
        neighbors={"method": "brute"},
        eigensolver={"n_components": 5},
        execution={"cluster": {"kind": "local"}},
    )
    metrics = lle("run", config)["metrics"]
    assert metrics["recall"]["value"] == 1.0
    np.testing.assert_allclose(metrics["eigenvalues"][0], [1.611e-6, 3.831e-6, 4.321e-6, 7.411e-6, 1.797e-5], rtol=0.02)


def test_closed_classes_of_cover_are_repaired(tmp_path, shared_data):
    """The exact graph has closed classes of 124, 98 and 39 points, and 286,000 transient points."""
    source = {"kind": "npz", "path": str(shared_data("tables/cover.npz")), "key": "X", "labels": "y"}
    config = write_config(
        tmp_path,
        input=source,
        preprocess={"scale": "standard"},
        eigensolver={"n_components": 6},
        execution={"cluster": {"kind": "local"}},
    )
    metrics = lle("run", config)["metrics"]
    assert metrics["closed_classes"] == 3
    assert metrics["closed_classes_left"] == metrics["n_components_weak"]
    assert metrics["reverse_added"] > 0
    assert min(metrics["participation"][0]) > 5000
    assert "participation" not in [finding["measure"] for finding in metrics["findings"]]


def test_skin_is_mostly_duplicates(tmp_path, shared_data):
    path = shared_data("tables/skin.npz")
    config = write_config(tmp_path, input={"kind": "npz", "path": str(path), "key": "X", "labels": "y"})
    metrics = lle("run", config)["metrics"]
    assert metrics["n_points"] == 51_433
    assert metrics["duplicates_merged"] == 245_057 - 51_433
    store = Store(str(tmp_path / "run.zarr"))
    embedding, component = store.read_all("embedding"), store.read_all("component")
    assert np.isfinite(embedding[component >= 0]).all()
    assert (component == -1).sum() == metrics["dropped"].get("small_component", 0)
    with np.load(path) as data:
        _, first, same = np.unique(data["X"], axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(embedding, embedding[first][same.ravel()])
