"""`lle export STORE x.h5ad --into obsm/X_lle`: the matrix, obs and uns, rows matched by obs_names, the rest untouched.

Files are read back with h5py, and with anndata itself where it is installed.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lle.storage.store import Store
from tests.support.commands import FEW, lle, refused, write_config

h5py = pytest.importorskip("h5py", reason="NOT CHECKED: .h5ad needs h5py, of the extras anndata and test")
N = 150
RNG = np.random.default_rng(61)
IDS = [f"cell{i}" for i in range(N)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, str]:
    """Stores of the same rows with ids, without them, and with a fitted sample."""
    folder = tmp_path_factory.mktemp("runs")
    pd.DataFrame(RNG.normal(size=(N, 3)), columns=["a", "b", "c"]).assign(cell=IDS).to_parquet(folder / "x.parquet")
    stores = {}
    for name, key in (("ids", {"id": "cell"}), ("order", {}), ("sample", {"fit_sample": 100})):
        (folder / name).mkdir()
        section = {"kind": "parquet", "path": str(folder / "x.parquet"), **key}
        stores[name] = lle("run", write_config(folder / name, input=section, **FEW), "--set", "method=pca")["store"]
    return stores


def embedding(store: str) -> np.ndarray:
    return Store(store).read_all("embedding")


def write_h5ad(path: Path, names: list[str]) -> Path:
    """A file with other content, which an export must leave as it is."""
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        obs = file.create_group("obs")
        obs.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "names"})
        obs.attrs.create("column-order", ["age"], dtype=h5py.string_dtype())
        obs.create_dataset("names", data=np.array(names, object), dtype=h5py.string_dtype())
        obs.create_dataset("age", data=np.arange(len(names)))
        file.create_dataset("X", data=np.arange(len(names) * 2.0).reshape(-1, 2))
    return path


def test_every_row_of_a_run_with_a_fitted_sample_is_written(runs, tmp_path):
    assert lle("export", runs["sample"], tmp_path / "y.h5ad")["rows"] == N
    with h5py.File(tmp_path / "y.h5ad") as file:
        np.testing.assert_array_equal(file["obsm/X_lle"][:], embedding(runs["sample"]))
        assert file["uns/lle/eigenvalues"].shape == (1, 2)


def test_new_file_has_ids_as_obs_names_and_the_results(runs, tmp_path):
    assert lle("export", runs["ids"], tmp_path / "y.h5ad")["rows"] == N
    with h5py.File(tmp_path / "y.h5ad") as file:
        assert file["obs/_index"].asstr()[:].tolist() == IDS
        np.testing.assert_array_equal(file["obsm/X_lle"][:], embedding(runs["ids"]))
        assert file["obs/lle_component/categories"].asstr()[:].tolist() == ["0"]
        assert file["obs/lle_component/codes"][:].tolist() == [0] * N
        assert file["uns/lle/params/method"].asstr()[()] == "pca"
        assert file["uns/lle/eigenvalues"].shape == (1, 2)
        assert 0.0 < file["uns/lle/trustworthiness"][()] <= 1.0


def test_existing_file_gets_the_rows_by_name_and_keeps_the_rest(runs, tmp_path):
    order = RNG.permutation(N)
    path = write_h5ad(tmp_path / "y.h5ad", [IDS[row] for row in order])
    for _ in range(2):  # a second export replaces the first
        lle("export", runs["ids"], path, "--into", "obsm/X_coords")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["obsm/X_coords"][:], embedding(runs["ids"])[order])
        assert list(file["obs"].attrs["column-order"]) == ["age", "coords_component"]
        np.testing.assert_array_equal(file["obs/age"][:], np.arange(N))
        np.testing.assert_array_equal(file["X"][:], np.arange(N * 2.0).reshape(-1, 2))
        assert list(file["uns"]) == ["coords"]


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_the_label_is_in_obs_under_the_name_of_its_column(tmp_path, kind):
    """A column of this name that a file has stays as it is."""
    classes = np.array(["T cell", "B cell", None], object)[np.arange(N) % 3]
    label = classes if kind == "classes" else np.linspace(0, 1, N)
    table = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["a", "b", "c"]).assign(cell=IDS, cell_type=label)
    table.to_parquet(tmp_path / "x.parquet")
    section = {"kind": "parquet", "path": str(tmp_path / "x.parquet"), "id": "cell", "label": "cell_type"}
    store = lle("run", write_config(tmp_path, input=section, **FEW), "--set", "method=pca")["store"]
    order = RNG.permutation(N)
    lle("export", store, tmp_path / "new.h5ad")
    lle("export", store, write_h5ad(tmp_path / "old.h5ad", [IDS[row] for row in order]))
    for name, rows in (("new", np.arange(N)), ("old", order)):
        with h5py.File(tmp_path / f"{name}.h5ad") as file:
            assert list(file["obs"].attrs["column-order"])[-1] == "cell_type"
            if kind == "numbers":
                np.testing.assert_array_equal(file["obs/cell_type"][:], label[rows])
                continue
            names = [*file["obs/cell_type/categories"].asstr()[:], None]
            assert [names[code] for code in file["obs/cell_type/codes"][:]] == label[rows].tolist()
    with h5py.File(tmp_path / "old.h5ad", "a") as file:
        del file["obs/cell_type"]
        file["obs"].create_dataset("cell_type", data=np.arange(N))
    lle("export", store, tmp_path / "old.h5ad")
    with h5py.File(tmp_path / "old.h5ad") as file:
        np.testing.assert_array_equal(file["obs/cell_type"][:], np.arange(N))


def test_without_ids_the_order_counts(runs, tmp_path):
    path = write_h5ad(tmp_path / "y.h5ad", [f"other{i}" for i in range(N)])
    lle("export", runs["order"], path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["obsm/X_lle"][:], embedding(runs["order"]))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (IDS[:-1], "found 149 names of which 149 are ids"),
        ([*IDS[:-1], "stranger"], "found 150 names of which 149 are ids"),
        ([*IDS[:-1], IDS[0]], "each once"),
    ],
)
def test_other_rows_are_refused_and_the_file_is_left_as_it_was(runs, tmp_path, names, message):
    path = write_h5ad(tmp_path / "y.h5ad", names)
    before = path.read_bytes()
    assert message in refused(2, "export", runs["ids"], path)
    assert path.read_bytes() == before
    assert [other.name for other in tmp_path.iterdir()] == ["y.h5ad"]


def test_wrong_places_are_refused(runs, tmp_path):
    (tmp_path / "text.h5ad").write_text("no HDF5")
    with h5py.File(tmp_path / "other.h5ad", "w") as file:
        file.create_dataset("data", data=[1])
    with h5py.File(tmp_path / "table.h5ad", "w") as file:
        file.create_dataset("obs", data=np.zeros(N, [("age", "f8")]))
    with h5py.File(write_h5ad(tmp_path / "matrix.h5ad", IDS), "a") as file:
        file.create_dataset("obsm", data=[1])
    store = runs["order"]
    for arguments, message in (
        ((tmp_path / "table.h5ad",), "HDF5 of another kind"),
        ((tmp_path / "matrix.h5ad",), "HDF5 of another kind"),
        ((tmp_path / "y.h5ad", "--into", "obsm/X_"), "expected obsm/NAME"),
        ((tmp_path / "y.h5ad", "--into", "obsm/.."), "expected obsm/NAME"),
        ((tmp_path / "text.h5ad",), "found something else"),
        ((tmp_path / "other.h5ad",), "HDF5 of another kind"),
        ((tmp_path / "none" / "y.h5ad",), "its folder does not exist"),
        (("s3://bucket/y.h5ad",), "expected a local file"),
        ((tmp_path / "y.h5ad", "--into", "X_lle"), "expected obsm/NAME"),
        ((tmp_path / "y.h5ad", "--with", "a"), "remove --with"),
        ((tmp_path / "y.csv", "--into", "obsm/X_lle"), "expected OUT.h5ad"),
    ):
        assert message in refused(2, "export", store, *arguments)
    assert not (tmp_path / "y.h5ad").exists()
    assert (tmp_path / "text.h5ad").read_text() == "no HDF5"


@pytest.mark.filterwarnings("ignore")
def test_anndata_reads_the_files(runs, tmp_path):
    anndata = pytest.importorskip("anndata", reason="NOT CHECKED by anndata: it needs pandas below 3")
    lle("export", runs["ids"], tmp_path / "new.h5ad")
    existing = anndata.AnnData(X=RNG.normal(size=(N, 2)), obs=pd.DataFrame({"age": np.arange(N)}, index=IDS[::-1]))
    existing.write_h5ad(tmp_path / "old.h5ad")
    lle("export", runs["ids"], tmp_path / "old.h5ad")
    for name, sign in (("new", 1), ("old", -1)):
        adata = anndata.read_h5ad(tmp_path / f"{name}.h5ad")
        np.testing.assert_array_equal(adata.obsm["X_lle"], embedding(runs["ids"])[::sign])
        assert adata.obs_names.tolist() == IDS[::sign]
        assert adata.uns["lle"]["params"]["method"] == "pca"
        assert (adata.obs["lle_component"] == "0").all()
