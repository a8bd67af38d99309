"""lle.scanpy on objects with the attributes of AnnData, and on AnnData where it is installed."""

import copy
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.neighbors import kneighbors_graph

from lle import LocallyLinearEmbedding, embed, open_run
from lle.report.metrics import Metrics
from lle.scanpy import _write, lle
from tests.support.points import swiss_roll

N = 240
QUICK = {"quality": {"sample": 50}}
POINTS = swiss_roll(N, np.random.default_rng(53))


@dataclass
class Cells:
    """The attributes of an AnnData object that the tool uses."""

    obsm: dict[str, Any]
    obsp: dict[str, Any]
    uns: dict[str, Any]
    obs: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(index=[f"cell{i}" for i in range(N)]))
    X: Any = None

    def copy(self) -> "Cells":
        return copy.deepcopy(self)


@pytest.fixture(params=["attributes", "anndata"])
def adata(request: pytest.FixtureRequest) -> Any:
    """Cells with a matrix, and a graph as scanpy.pp.neighbors stores it."""
    parts = {
        "obsm": {"X_pca": POINTS},
        "obsp": {"distances": kneighbors_graph(POINTS, 9, mode="distance")},
        "uns": {"neighbors": {"distances_key": "distances", "params": {"n_neighbors": 10}}, "hvg": ["a"]},
    }
    if request.param == "attributes":
        return Cells(**parts)
    anndata = pytest.importorskip("anndata", reason="needs the extra anndata, whose pandas is below 3")
    return anndata.AnnData(obs=Cells(**parts).obs, **parts)


def test_results_are_written_to_the_object(adata):
    assert lle(adata, n_components=3, n_neighbors=11, **QUICK) is None
    expected = embed(POINTS, n_components=3, n_neighbors=11, **QUICK)
    np.testing.assert_array_equal(adata.obsm["X_lle"], expected)
    assert set(adata.obs["lle_component"]) == {"0"}
    assert 0.5 < adata.uns["lle"]["trustworthiness"] <= 1.0
    assert adata.uns["lle"]["params"]["n_components"] == 3


def test_a_kept_store_has_the_names_of_the_cells(adata, tmp_path, capsys):
    lle(adata, store=tmp_path / "run.zarr", verbose=True, **QUICK)
    assert list(open_run(tmp_path / "run.zarr").to_frame().index) == list(adata.obs.index)
    assert "solve_embedding" in capsys.readouterr().err


def test_components_are_categories_in_the_order_of_their_numbers(adata):
    _write(adata, "lle", POINTS, np.arange(N, dtype=np.int32) % 12 - 1, Metrics())
    assert list(adata.obs["lle_component"].cat.categories) == [str(number) for number in range(-1, 11)]
    assert list(adata.obs["lle_component"][:3]) == ["-1", "0", "1"]


def test_copy_does_not_change_the_object(adata):
    result = lle(adata, key_added="sheet", copy=True, method="ltsa", **QUICK)
    assert "X_sheet" not in adata.obsm
    assert result.obsm["X_sheet"].shape == (N, 2)


def test_stored_neighbours_replace_the_search(adata):
    lle(adata, neighbors_key="neighbors", method="ltsa", **QUICK)
    np.testing.assert_allclose(adata.obsm["X_lle"], embed(POINTS, n_neighbors=9, method="ltsa", **QUICK), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"use_rep": "X_umap"}, r"adata.obsm has no 'X_umap' \(there are: X_pca\)"),
        ({"use_rep": "X"}, "'X' is empty"),
        ({"key_added": "X_"}, "key_added: expected a name, such as 'lle'; found 'X_'"),
        ({"neighbors_key": "hvg"}, "adata.uns has no graph 'hvg'; run scanpy.pp.neighbors"),
        ({"neighbors_key": "other"}, "adata.uns has no graph 'other'; run scanpy.pp.neighbors"),
        ({"n_neighbours": 4}, r"lle\.scanpy\.lle: there is no parameter 'n_neighbours'; did you mean n_neighbors?"),
        ({"use_reps": "X"}, r"lle\.scanpy\.lle: there is no parameter 'use_reps'; did you mean use_rep?"),
    ],
)
def test_error_messages_list_what_there_is(adata, arguments, message):
    with pytest.raises(ValueError, match=message):
        lle(adata, **arguments)


def test_sparse_matrix_is_refused_with_a_way_to_reduce_it():
    for use_rep in ("X", "X_pca"):
        with pytest.raises(ValueError, match=r"sparse matrix of shape \(240, 3\)"):
            lle(Cells({"X_pca": csr_matrix(POINTS)}, {}, {}, X=csr_matrix(POINTS)), use_rep=use_rep)


def test_other_objects_are_refused():
    with pytest.raises(ValueError, match=r"adata: expected an AnnData object, found ndarray; pass arrays to lle.embed"):
        lle(POINTS)


def test_fit_of_an_object_names_what_to_pass(monkeypatch):
    class Module:
        AnnData = Cells

    monkeypatch.setitem(sys.modules, "anndata", Module)
    with pytest.raises(ValueError, match=r"such as adata.obsm\['X_pca'\] \(there are X_pca\), or call lle.scanpy.lle"):
        LocallyLinearEmbedding().fit(Cells({"X_pca": POINTS}, {}, {}))
