"""AnnData files as input, and lle.scanpy on AnnData objects.

Files are written element by element, as the format is described; with anndata installed also by anndata itself.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.neighbors import kneighbors_graph

from lle import embed, open_run
from lle.config.load import check_config
from lle.core.errors import ConfigError, InputError
from lle.inputs import open_source
from tests.support.commands import lle, refused

h5py = pytest.importorskip("h5py", reason="AnnData files need h5py, of the extras anndata and test")

N, K = 240, 10
QUICK = {"quality": {"sample": 50}}
CELLS = [f"cell{i}" for i in range(N)]


def spiral() -> tuple[np.ndarray, np.ndarray]:
    """Points of a rolled sheet (N, 3), float32, and their position along it."""
    rng = np.random.default_rng(47)
    along = np.sort(rng.uniform(4.0, 12.0, N))[rng.permutation(N)]
    points = np.column_stack([along * np.cos(along), along * np.sin(along), rng.uniform(0, 5, N)])
    return points.astype(np.float32), along


POINTS, ALONG = spiral()
STAGES = np.array(["early", "late", ""])[np.where(np.arange(N) % 7 == 3, 2, (ALONG > 8).astype(int))]
"""Text labels; "" is missing."""
GRAPH = kneighbors_graph(POINTS, K, mode="distance")


def _put(group: Any, name: str, values: np.ndarray, kind: str = "array") -> None:
    """One dense element."""
    if isinstance(group, h5py.Group):
        group.create_dataset(name, data=values.astype(object) if values.dtype.kind == "U" else values)
    else:
        group.create_array(name, data=values.astype(np.dtypes.StringDType()) if values.dtype.kind == "U" else values)
    group[name].attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})


def write_by_hand(root: Any) -> None:
    """obs with categories, numbers and text, obsm/X_pca, obsp/distances, and a sparse X, as anndata writes them."""
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    obs, obsm, obsp = (root.create_group(name) for name in ("obs", "obsm", "obsp"))
    obs.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
    _put(obs, "_index", np.array(CELLS), "string-array")
    _put(obs, "age", ALONG)
    _put(obs, "donor", np.array([f"d{i % 3}" for i in range(N)]), "string-array")
    stage = obs.create_group("stage")
    stage.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    _put(stage, "categories", np.array(["late", "early"]), "string-array")
    codes = {"late": 0, "early": 1, "": -1}
    _put(stage, "codes", np.array([codes[str(text)] for text in STAGES], np.int8))
    _put(obsm, "X_pca", POINTS)
    for holder, name in ((obsp, "distances"), (root, "X")):
        sparse = holder.create_group(name)
        sparse.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [N, N]})
        for part in ("data", "indices", "indptr"):
            _put(sparse, part, getattr(GRAPH, part))


def write_by_anndata(path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="needs the extra anndata, whose pandas is below 3")
    pandas = pytest.importorskip("pandas")
    stage = pandas.Categorical([str(text) or None for text in STAGES])
    obs = pandas.DataFrame({"age": ALONG, "donor": [f"d{i % 3}" for i in range(N)], "stage": stage}, index=CELLS)
    adata = anndata.AnnData(X=GRAPH.astype(np.float32), obs=obs, obsm={"X_pca": POINTS}, obsp={"distances": GRAPH})
    adata.write_h5ad(path) if path.suffix == ".h5ad" else adata.write_zarr(path)


@pytest.fixture(scope="module", params=["hand.h5ad", "hand.zarr", "anndata.h5ad", "anndata.zarr"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same cells as .h5ad and as .zarr."""
    path = tmp_path_factory.mktemp("cells") / request.param
    if request.param.startswith("anndata"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.filters", [("ignore", None, Warning, None, 0)])
            write_by_anndata(path)
    elif path.suffix == ".h5ad":
        with h5py.File(path, "w") as file:
            write_by_hand(file)
    else:
        write_by_hand(zarr.open_group(path, mode="w"))
    return str(path)


class TestPoints:
    def test_blocks_of_rows_are_those_of_the_matrix(self, path):
        source = open_source("anndata", path=path)
        assert (source.n_rows, source.n_features, source.dtype) == (N, 3, np.float32)
        for start, stop in ((0, N), (7, 100), (N - 1, N)):
            np.testing.assert_array_equal(source.read(start, stop), POINTS[start:stop])

    def test_categories_are_decoded(self, path):
        source = open_source("anndata", path=path, label="stage")
        assert (source.labels.kind, source.labels.names) == ("categorical", ("early", "late"))
        expected = np.select([STAGES == "early", STAGES == "late"], [0.0, 1.0], np.nan)
        np.testing.assert_array_equal(source.read_labels(5, 90), expected[5:90])

    def test_columns_of_numbers_and_text_are_labels(self, path):
        ages = open_source("anndata", path=path, label="age")
        assert ages.labels.kind == "continuous"
        np.testing.assert_array_equal(ages.read_labels(0, N), ALONG)
        donors = open_source("anndata", path=path, label="donor")
        assert donors.labels.names == ("d0", "d1", "d2")
        np.testing.assert_array_equal(donors.read_labels(0, N), np.arange(N) % 3)

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ({"obsm": "X_umap"}, "there is no obsm/X_umap; obsm holds X_pca; set input.obsm to one of them"),
            ({"obsm": None}, r"expected a dense matrix in X, found csr_matrix; reduce it first, .*scanpy\.pp\.pca"),
            ({"label": "louvain"}, "there is no obs/louvain; obs holds age, donor, stage; set input.label"),
            (
                {"obsp": "connectivities"},
                "there is no obsp/connectivities; obsp holds distances; set neighbors.precomp",
            ),
        ],
    )
    def test_missing_element_is_named_with_what_is_there(self, path, keys, message):
        with pytest.raises(InputError, match=message):
            open_source("anndata", path=path, **keys)

    def test_file_without_a_matrix_says_how_to_write_one(self, tmp_path):
        path = tmp_path / "cells.h5ad"
        with h5py.File(path, "w") as file:
            write_by_hand(file)
            del file["X"], file["obsm/X_pca"]
        for obsm, message in ((None, "there is no X; the file holds obs, obsm, obsp"), ("X_pca", "obsm holds nothing")):
            with pytest.raises(InputError, match=rf"{message}; write it first, as scanpy\.pp\.pca\(adata\) writes"):
                open_source("anndata", path=path, obsm=obsm)

    def test_fingerprint_follows_the_file(self, path):
        fingerprint = open_source("anndata", path=path, label="stage").fingerprint()
        assert fingerprint == open_source("anndata", path=path, label="stage").fingerprint()
        assert fingerprint != open_source("anndata", path=path, label="age").fingerprint()


def test_obs_names_and_columns_of_obs_are_ids(path):
    source = open_source("anndata", path=path, id="obs_names")
    columns = source.read_columns(["obs_names", "stage", "age"], 3, 9).to_pydict()
    assert columns["obs_names"] == CELLS[3:9]
    assert columns["stage"] == [text or None for text in STAGES[3:9].tolist()]
    assert columns["age"] == ALONG[3:9].tolist()
    assert open_source("anndata", path=path, id="donor").read_columns(["donor"], 0, 4)["donor"][3].as_py() == "d0"
    with pytest.raises(InputError, match="there is no obs/barcode; obs holds age, donor, stage"):
        open_source("anndata", path=path, id="barcode")


def test_whole_numbers_and_fractions_of_two_files_are_one_column(tmp_path):
    for number, values in enumerate([np.arange(N), np.arange(N) + 0.5]):
        with h5py.File(tmp_path / f"{number}.h5ad", "w") as file:
            write_by_hand(file)
            file["obs"].create_dataset("size", data=values)
    source = open_source("anndata", path=f"{tmp_path}/*.h5ad", id="obs_names")
    assert source.read_columns(["size"], N - 1, N + 1)["size"].to_pylist() == [N - 1, 0.5]


def test_unsigned_numbers_are_ids(path, tmp_path):
    if not path.endswith(".h5ad"):
        pytest.skip("one format is enough")
    copy = tmp_path / "cells.h5ad"
    copy.write_bytes(Path(path).read_bytes())
    with h5py.File(copy, "a") as file:
        file["obs"].create_dataset("key", data=np.arange(N, dtype=np.uint64) + 2**63)
    source = open_source("anndata", path=str(copy), id="key")
    assert source.read_columns(["key"], 2, 4)["key"].to_pylist() == [2**63 + 2, 2**63 + 3]


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_integers_that_may_be_missing_are_classes_and_ids(tmp_path, toy_stages, name):
    path = tmp_path / name
    root = h5py.File(path, "w") if name.endswith(".h5ad") else zarr.open_group(path, mode="w")
    write_by_hand(root)
    for encoding, parts in (
        ("categorical", {"categories": np.array([7, 9]), "codes": np.arange(N) % 3 - 1}),
        ("nullable-integer", {"values": np.array([4, 7, 9])[np.arange(N) % 3], "mask": np.arange(N) % 3 == 0}),
    ):
        column = root["obs"].create_group(encoding)
        column.attrs.update({"encoding-type": encoding, "encoding-version": "0.1.0"})
        for part, values in parts.items():
            _put(column, part, values)
    if isinstance(root, h5py.File):
        root.close()
    for encoding in ("categorical", "nullable-integer"):
        source = open_source("anndata", path=str(path), label=encoding, id=encoding)
        assert source.labels.names == ("7", "9")
        np.testing.assert_array_equal(source.read_labels(0, 6), [np.nan, 0, 1] * 2)
        assert source.read_columns([encoding], 1, 3)[encoding].to_pylist() == [7, 9]
        assert source.read_columns([encoding], 0, 2)[encoding].to_pylist() == [None, 7]
    section = {"kind": "anndata", "path": str(path), "id": "nullable-integer"}
    embed(section, reg=1e-3, store=tmp_path / "run.zarr", **QUICK)
    np.testing.assert_array_equal(open_run(tmp_path / "run.zarr").to_frame().index[:3], [np.nan, 7, 9])


@pytest.mark.slow
def test_exports_of_a_run_have_obs_names_as_ids(path, tmp_path):
    store = str(tmp_path / "run.zarr")
    Y = embed({"kind": "anndata", "path": path, "id": "obs_names"}, method="ltsa", n_neighbors=K, store=store, **QUICK)
    lle("export", store, tmp_path / "y.parquet")
    assert pd.read_parquet(tmp_path / "y.parquet")["obs_names"].tolist() == CELLS
    lle("export", store, tmp_path / "y.h5ad")
    with h5py.File(tmp_path / "y.h5ad") as file:
        assert file["obs/_index"].asstr()[:].tolist() == CELLS
        np.testing.assert_array_equal(file["obsm/X_lle"][:], Y)
    if path.endswith(".h5ad"):
        copy = tmp_path / "cells.h5ad"
        copy.write_bytes(Path(path).read_bytes())
        lle("export", store, copy)
        np.testing.assert_array_equal(open_source("anndata", path=copy, obsm="X_lle").read(0, N), Y)
        np.testing.assert_array_equal(open_source("anndata", path=copy).read(0, N), POINTS)


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.zarr"])
def test_new_rows_have_the_matrix_of_the_run_and_its_ids(tmp_path, name):
    path, store = tmp_path / name, str(tmp_path / "run.zarr")
    root = h5py.File(path, "w") if name.endswith(".h5ad") else zarr.open_group(path, mode="w")
    write_by_hand(root)
    _put(root["obsm"], "X_scVI", POINTS[:, ::-1] ** 2)
    if isinstance(root, h5py.File):
        root.close()
    section = {"kind": "anndata", "path": str(path), "obsm": "X_scVI", "id": "obs_names"}
    Y = embed(section, n_neighbors=K, store=store, **QUICK)
    lle("transform", store, path, tmp_path / "y.parquet")
    table = pd.read_parquet(tmp_path / "y.parquet")
    assert table["obs_names"].tolist() == CELLS
    np.testing.assert_array_equal(table[["y1", "y2"]], Y)
    assert "--with: the input has no named columns" in refused(
        2, "transform", store, path, tmp_path / "z.parquet", "--with", "age"
    )
    zarr.save_array(tmp_path / "rows.zarr", POINTS[:, ::-1] ** 2)  # no AnnData
    lle("transform", store, tmp_path / "rows.zarr", tmp_path / "rows.parquet")
    np.testing.assert_array_equal(pd.read_parquet(tmp_path / "rows.parquet")[["y1", "y2"]], Y)


@pytest.mark.parametrize("what", [{}, {"label": "stage"}])
def test_tables_of_an_old_anndata_are_named(tmp_path, what):
    """Before 0.7, obs and obsm were arrays of records."""
    path = tmp_path / "old.h5ad"
    with h5py.File(path, "w") as file:
        file["obs"] = np.zeros(N, [("index", "S8"), ("stage", "i1")])
        file["obsm"] = np.zeros(N, [("X_pca", "f4", (3,))])
    wanted = {"obsm": "X_pca"} | what
    with pytest.raises(InputError, match="as an old anndata"):
        open_source("anndata", path=str(path), **wanted)


def test_damaged_file_is_an_input_error(tmp_path):
    (tmp_path / "x.h5ad").write_bytes(b"no HDF5 at all" * 100)
    with pytest.raises(InputError, match=r"x\.h5ad: expected an \.h5ad file, as adata\.write_h5ad writes"):
        open_source("anndata", path=str(tmp_path / "x.h5ad"))


@pytest.mark.slow
def test_run_takes_points_labels_and_neighbours_from_the_file(path, tmp_path):
    """The graph of obsp gives the embedding that the same neighbours give when they are searched."""
    store = str(tmp_path / "run.zarr")
    graph = {"precomputed": {"kind": "anndata", "path": path}, "k_max": K}
    Y = embed({"kind": "anndata", "path": path, "label": "stage"}, neighbors=graph, store=store, method="ltsa", **QUICK)
    run = open_run(store)
    assert set(run.to_frame()["stage"].dropna()) == {"early", "late"}
    np.testing.assert_allclose(Y, embed(POINTS, n_neighbors=K, method="ltsa", **QUICK), atol=1e-6)
    assert np.abs(Y - embed(POINTS, n_neighbors=K + 4, method="ltsa", **QUICK)).max() > 1e-3


def test_unknown_key_names_the_allowed_ones():
    data = {"input": {"kind": "anndata", "path": "x.h5ad", "obsn": "X_pca"}, "output": {"store": "run.zarr"}}
    with pytest.raises(ConfigError, match=r"input\.obsn: unknown key .*did you mean obsm"):
        check_config(data, "config")
