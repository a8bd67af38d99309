"""Ingest: every row of the input once, invalid rows refused or dropped, duplicates merged."""

import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from lle.config.models import Config
from lle.core.errors import InputError
from lle.inputs import open_source
from lle.stages import ingest, ingest_duplicates
from lle.stages.ingest_duplicates import DistinctRows
from tests.support.points import swiss_roll

N = 260
BLOCKS = [260, 75]


@pytest.fixture
def rng():
    return np.random.default_rng(83)  # nothing here depends on which numbers they are


@pytest.fixture
def points(rng):
    return swiss_roll(N, rng)


@pytest.fixture
def take_in(tmp_path, run_stages, make_config):
    """`take_in(points, block_points, **sections)` runs ingest."""

    def run(points, block_points="auto", **sections):
        return run_stages(make_config(tmp_path, points, block_points, **sections), "ingest")

    return run


def first_with_same_values(points) -> list[int]:
    first: dict[bytes, int] = {}
    finite = np.isfinite(points).all(axis=1)
    return [first.setdefault(row.tobytes(), i) if finite[i] else -1 for i, row in enumerate(points)]


@pytest.mark.parametrize("block_points", BLOCKS)
class TestRead:
    @pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
    def test_copies_every_row(self, take_in, points, block_points, dtype):
        points = points.astype(dtype) if dtype != "int16" else (1000 * points).astype(dtype)
        run = take_in(points, block_points)
        raw = run.store.read_all("_work/raw")
        np.testing.assert_array_equal(raw, points)
        assert raw.dtype == run.layout.dtype == ("float64" if dtype == "float64" else "float32")
        assert run.layout.input_blocks.count == -(-N // block_points)
        assert [report.rows for report in run.reports["ingest.read"]] == [
            min(block_points, N - start) for start in range(0, N, block_points)
        ]

    def test_keeps_a_sample_of_valid_rows(self, take_in, points, block_points):
        points[::9] = np.nan
        run = take_in(points, block_points, preprocess={"invalid": "drop"})
        for block in range(run.layout.input_blocks.count):
            sample = run.store.read_bundle(f"_work/sample/{block:05d}")
            stop = min((block + 1) * block_points, N)
            assert sample["rows"].tolist() == [row for row in range(block * block_points, stop) if row % 9]
            np.testing.assert_array_equal(sample["points"], points[sample["rows"]])

    def test_hashes_and_sample_do_not_depend_on_the_blocks(self, take_in, points, block_points):
        actual, expected = take_in(points, block_points).store, take_in(points, N).store
        np.testing.assert_array_equal(actual.read_all("_work/row_hash"), expected.read_all("_work/row_hash"))


@pytest.mark.parametrize("block_points", BLOCKS)
class TestInvalidRows:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
    def test_invalid_rows_are_an_error_with_count_and_names(self, take_in, points, block_points, value):
        points[[5, 40, 41, 120, 199, 200, 259], 1] = value
        with pytest.raises(InputError) as caught:
            take_in(points, block_points)
        for part in ("7 rows with NaN or infinity", "rows 5, 40, 41, 120, 199, ...", "preprocess.invalid: drop"):
            assert part in str(caught.value)
        assert caught.value.exit_code == 2

    def test_invalid_rows_are_dropped_if_configured(self, take_in, points, block_points):
        points[[5, 40, 259]] = np.nan
        run = take_in(points, block_points, preprocess={"invalid": "drop"})
        representative = run.store.read_all("_work/representative")
        np.testing.assert_array_equal(np.flatnonzero(representative < 0), [5, 40, 259])
        assert sum(report.invalid for report in run.reports["ingest.read"]) == 3
        assert run.layout.n_points == N - 3


class TestInvalidNames:
    def test_few_rows_are_all_named(self, take_in, points):
        points[[7, 9]] = np.nan
        first = r"the first is row 7 of .*npy, column 0, 1, 2"
        with pytest.raises(InputError, match=rf"2 rows with NaN or infinity.* \(rows 7, 9, counted from 0; {first}"):
            take_in(points)

    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    @pytest.mark.parametrize("where", [None, 1])
    def test_the_file_and_the_column_of_a_table_are_named(self, take_in, points, tmp_path, kind, where):
        frame = pd.DataFrame(points[:, :3], columns=["a", "b", "c"]).assign(side=1)
        frame.loc[130, "b"] = np.nan
        for number, part in enumerate((frame[:100], frame[100:])):
            path = tmp_path / f"t{number}.{kind}"
            part.to_csv(path, index=False) if kind == "csv" else part.to_parquet(path, index=False)
        source = {"kind": kind, "path": str(tmp_path / f"t*.{kind}"), "label": "side", "where": where}
        first = rf"the first is row 30 of .*t1\.{kind}, column 'b'"
        with pytest.raises(InputError, match=rf"rows 130, counted from 0; {first}"):
            take_in(points, input=source)


@pytest.mark.parametrize("block_points", BLOCKS)
class TestDuplicates:
    @pytest.fixture(autouse=True, params=[2**24, 40])
    def merged_at_once(self, request, monkeypatch):
        monkeypatch.setattr(ingest_duplicates, "MERGED_AT_ONCE", request.param)

    def test_duplicates_are_represented_by_their_first_row(self, take_in, points, block_points, rng):
        points[100:180] = points[rng.integers(0, 100, 80)]
        points[220], points[240] = points[3], points[260 - 1]
        points[30] = np.nan
        run = take_in(points, block_points, preprocess={"invalid": "drop"})
        representative = run.store.read_all("_work/representative")
        expected = first_with_same_values(points)
        assert representative.tolist() == expected
        n_points = len(set(expected) - {-1})
        assert run.reports["ingest.merge_duplicates"] == [DistinctRows(N - 1, n_points)]
        assert run.layout.n_points == n_points < N - 80

    def test_negative_zero_equals_zero(self, take_in, points, block_points):
        points[10], points[250] = [0.0, 1.0, 2.0], [-0.0, 1.0, 2.0]
        representative = take_in(points, block_points).store.read_all("_work/representative")
        assert representative[250] == 10

    def test_identical_rows_are_an_input_error(self, take_in, block_points):
        with pytest.raises(InputError, match="260 valid rows hold 1 distinct point, but") as caught:
            take_in(np.ones((N, 3)), block_points)
        assert "n_neighbors is 12" in str(caught.value)

    def test_rows_with_gaps_are_the_cause_of_too_few_points(self, take_in, points, block_points):
        points[5:, 0] = np.nan
        with pytest.raises(InputError, match=f"{N - 5} of {N} rows hold NaN or infinity: fill the gaps first"):
            take_in(points, block_points, preprocess={"invalid": "drop"})

    @pytest.mark.parametrize(("n_distinct", "is_sufficient"), [(12, False), (13, True)])
    def test_more_distinct_points_than_neighbors(self, take_in, points, block_points, n_distinct, is_sufficient):
        points = points[np.arange(N) % n_distinct]
        if is_sufficient:
            assert take_in(points, block_points).layout.n_points == n_distinct
        else:
            with pytest.raises(InputError, match=f"{n_distinct} distinct points, but neighbors.n_neighbors is 12"):
                take_in(points, block_points)

    def test_more_distinct_points_than_principal_components(self, take_in, rng, block_points):
        pca = {"method": "pca", "eigensolver": {"n_components": 20}}
        points = rng.normal(size=(N, 30))[np.arange(N) % 20]
        with pytest.raises(InputError, match="20 distinct points have at most 19 principal components"):
            take_in(points, block_points, **pca)
        with pytest.raises(InputError, match="20 rows have at most 19 principal components"):
            take_in(points[:20], block_points, **pca)
        pca["eigensolver"]["n_components"] = 19
        assert take_in(points, block_points, **pca).layout.n_points == 20


class TestRealDuplicates:
    def test_skin_has_51433_distinct_rows(self, shared_data, take_in):
        with np.load(shared_data("tables/skin.npz")) as loaded:
            X = loaded["X"]
        run = take_in(X)
        assert (run.layout.n_input, run.layout.n_points) == (245_057, 51_433)


@pytest.mark.parametrize("block_points", BLOCKS)
class TestPreprocessing:
    def fitted(self, run):
        return run.store.read_bundle("_work/transform")

    def test_standard_scale_is_fitted_on_valid_rows(self, take_in, points, block_points):
        points[[0, 99, 100]] = np.nan
        fitted = self.fitted(take_in(points, block_points, preprocess={"scale": "standard", "invalid": "drop"}))
        scaler = StandardScaler().fit(points[np.isfinite(points).all(axis=1)])
        assert set(fitted) == {"mean", "scale"}
        np.testing.assert_allclose((fitted["mean"] - scaler.mean_) / scaler.scale_, 0.0, atol=1e-9)
        np.testing.assert_allclose(fitted["scale"], scaler.scale_, rtol=1e-9)

    def test_principal_components_equal_scikit_learns(self, take_in, points, block_points):
        fitted = self.fitted(take_in(points, block_points, preprocess={"pca": 2}))
        model = PCA(2, svd_solver="full").fit(points)
        np.testing.assert_allclose(fitted["center"], model.mean_, rtol=1e-10, atol=1e-10)
        cosines = np.einsum("md,md->m", fitted["components"], model.components_)
        np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-12)

    def test_constant_columns_cannot_be_scaled(self, take_in, points, block_points):
        points[:, 1] = 0.1
        with pytest.raises(InputError, match=r"1 of 3 columns hold one value only \(numbered from 0: 1\)"):
            take_in(points, block_points, preprocess={"scale": "standard"})

    def test_a_block_without_valid_rows(self, take_in, points, block_points):
        points[100:137] = np.nan
        points[37:74] = np.nan
        fitted = self.fitted(take_in(points, block_points, preprocess={"scale": "standard", "invalid": "drop"}))
        shift = (fitted["mean"] - np.nanmean(points, axis=0)) / np.nanstd(points, axis=0)
        np.testing.assert_allclose(shift, 0.0, atol=1e-9)


class TestLabels:
    @pytest.mark.parametrize("block_points", BLOCKS)
    @pytest.mark.parametrize("width", [0, 2])
    def test_labels_are_stored_in_input_order(self, take_in, points, block_points, tmp_path, rng, width):
        labels = rng.random((N, width)) if width else rng.integers(0, 4, N).astype(np.float64)
        np.save(tmp_path / "labels.npy", labels)
        np.save(tmp_path / "x.npy", points)
        section = {"kind": "npy", "path": str(tmp_path / "x.npy"), "labels": str(tmp_path / "labels.npy")}
        run = take_in(points, block_points, input=section)
        np.testing.assert_array_equal(run.store.read_all("label"), labels.reshape(N, -1))
        assert run.layout.label_width == max(width, 1)

    def test_true_coordinates_of_a_manifold(self, take_in):
        run = take_in(np.zeros((1, 1)), 100, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 250})
        labels = run.store.read_all("label")
        assert labels.shape == (250, run.layout.label_width) == (250, 2)
        assert np.isfinite(labels).all()

    def test_labels_do_not_change_any_result(self, points, tmp_path, run_stages, make_config):
        """Changed labels repeat the step that reads them and no later step."""
        fingerprints = []
        for value in (1.0, 2.0):
            np.save(tmp_path / f"labels{value}.npy", np.full(N, value))
        np.save(tmp_path / "x.npy", points)
        for value in (1.0, 2.0):
            section = {"kind": "npy", "path": str(tmp_path / "x.npy"), "labels": str(tmp_path / f"labels{value}.npy")}
            config = make_config(tmp_path, points, 100, input=section, output={"store": str(tmp_path / "run.zarr")})
            store = run_stages(config, "order_points").store
            fingerprints.append(
                {name: store.get_json(name)["fingerprint"] for name in store.objects.names("_run/steps")}
            )
            assert (store.read_all("label") == value).all()
        changed = {name.rsplit("/", 1)[1] for name in fingerprints[0] if fingerprints[0][name] != fingerprints[1][name]}
        assert changed == {"ingest.read_labels.json"}


class TestChangedInput:
    def test_changed_file_of_the_same_name_is_read_again(self, points, tmp_path, run_stages, make_config):
        config = make_config(tmp_path, points, 100)
        run_stages(config, "ingest")
        np.save(config.input.path, points[:-7] + 1)
        run = run_stages(config, "ingest")
        np.testing.assert_array_equal(run.store.read_all("_work/raw"), points[:-7] + 1)


class TestFirstLayout:
    def layout(self, **sections):
        data = {"input": {"kind": "synthetic", "name": "s_curve", "n_points": 13}, "output": {"store": "x"}}
        config = Config.model_validate({**data, **sections})
        return ingest.first_layout(config, ingest.open_input(config))

    def test_sizes_of_the_header(self):
        layout = self.layout()
        assert (layout.n_input, layout.n_features_input, layout.dtype) == (13, 3, "float64")
        assert (layout.block_points, layout.label_width) == (13, 2)

    @pytest.mark.parametrize(
        ("sections", "parts"),
        [
            ({"neighbors": {"n_neighbors": 13}}, ["neighbors.n_neighbors is 13", "13 rows", "below 13"]),
            ({"eigensolver": {"n_components": 4}}, ["eigensolver.n_components is 4", "3 features", "at most 3"]),
            ({"preprocess": {"pca": 4}}, ["preprocess.pca is 4", "3 features"]),
        ],
    )
    def test_impossible_sizes_are_refused_before_reading(self, sections, parts):
        with pytest.raises(InputError) as caught:
            self.layout(**sections)
        assert all(part in str(caught.value) for part in parts)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_chunks_are_reported(tmp_path, points, zarr_format):
    array = zarr.create_array(
        tmp_path / "x.zarr",
        name="p",
        shape=points.shape,
        dtype=points.dtype,
        chunks=(50, points.shape[1]),
        zarr_format=zarr_format,
    )
    array[:] = points
    source = open_source("zarr", url=str(tmp_path / "x.zarr"), array="p", labels=None, columns=None)
    assert source.remark() == ""
    first = tmp_path / "x.zarr" / "p" / ("c/1/0" if zarr_format == 3 else "1.0")
    first.unlink()
    source = open_source("zarr", url=str(tmp_path / "x.zarr"), array="p", labels=None, columns=None)
    assert "array 'p': 1 of 6 chunks are missing; their rows are read as the fill value 0" in source.remark()
    config = Config.model_validate(
        {
            "input": {"kind": "zarr", "url": str(tmp_path / "x.zarr"), "array": "p"},
            "output": {"store": str(tmp_path / "run.zarr")},
        }
    )
    step = next(ingest.steps(config, ingest.first_layout(config, ingest.open_input(config))))
    assert step.remark == source.remark()
