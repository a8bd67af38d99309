"""Numbers that may stand for missing values are named; extremes of measurements are not."""

import numpy as np
import pandas as pd
import pytest

from lle.inputs import open_source
from lle.inputs.strange_values import far_values, missing_code, strange_values

N = 2000
RNG = np.random.default_rng(29)
X = RNG.normal(20, 5, N)


def with_codes(values, *codes, share=0.01):
    """A copy of the values in which each code replaces this share of the entries."""
    values, count = np.array(values, float), int(share * N)
    for number, code in enumerate(codes):
        values[number * count : (number + 1) * count] = code
    return values


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        pytest.param(with_codes(X, -9999), (-9999,), id="below"),
        pytest.param(with_codes(RNG.integers(0, 10**5, N), -999), (-999,), id="just below counts"),
        pytest.param(with_codes(X, 99.9), (99.9,), id="above"),
        pytest.param(with_codes(X, 99.9).astype(np.float32), (np.float32(99.9),), id="float32"),
        pytest.param(with_codes(X, 999, 998), (998, 999), id="several"),
        pytest.param(with_codes(RNG.integers(1, 6, N), 99), (99,), id="answers on a scale"),
        pytest.param(with_codes(X, 32767), (32767,), id="largest integer"),
        pytest.param(with_codes(X, 9999999), (9999999,), id="seven digits"),
        pytest.param(with_codes(X, 9.96921e36), (9.96921e36,), id="fill value of netCDF"),
        pytest.param(np.append(with_codes(X, -1e5), np.nan), (-1e5,), id="beside NaN"),
    ],
)
def test_repeated_numbers_far_from_all_others_are_codes(values, codes):
    found = missing_code(values)
    assert found.numbers == codes
    assert found.n_rows == 20 * len(codes)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(X, id="measurements"),
        pytest.param(RNG.lognormal(0, 4, N), id="heavy tail"),
        pytest.param(with_codes(X, 9e9, share=0.001), id="an outlier of two rows"),
        pytest.param(with_codes(X, 87.31), id="no whole number"),
        pytest.param(with_codes(RNG.normal(0, 1e4, N), -999), id="changes"),
        pytest.param(with_codes(X, 646), id="branches of the largest firm"),
        pytest.param(with_codes(X / 1000, 1), id="a flag beside shares"),
        pytest.param(with_codes(X + 99, 0, share=0.7), id="mostly zero"),
        pytest.param(with_codes(X, 999, share=0.995), id="nearly all"),
        pytest.param(RNG.integers(0, 2, N), id="two values"),
        pytest.param(with_codes(RNG.integers(0, 3, N), 7), id="counts"),
        pytest.param(np.clip(X, None, 30), id="largest value of an instrument"),
        pytest.param(np.full(N, np.nan), id="empty"),
    ],
)
def test_measurements_have_no_codes(values):
    assert missing_code(values) is None


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_with_codes_are_named_with_the_range_of_the_others(tmp_path, kind):
    frame = pd.DataFrame(
        {"wind": with_codes(np.clip(X, 1, 39), -999), "rain": X, "clouds": with_codes(X, 777, share=0.55)}
    )
    getattr(frame, f"to_{kind}")(tmp_path / f"x.{kind}", index=False)
    found = strange_values(open_source(kind, path=tmp_path / f"x.{kind}"))
    assert list(found) == ["wind", "clouds"]
    assert found["wind"].startswith("holds -999 in 20 of 2,000 rows, but its other values are from ")
    assert found["clouds"].startswith("holds 777 in 1,100 of 2,000 rows, ")


@pytest.mark.parametrize(("code", "n"), [(-999, 3), (777, 3), (777, 2)])
def test_a_code_in_three_rows_is_named(tmp_path, code, n):
    pd.DataFrame({"x": [*range(60), *[code] * n, np.nan]}).to_csv(tmp_path / "x.csv", index=False)
    assert list(strange_values(open_source("csv", path=tmp_path / "x.csv"))) == ["x"] * (n == 3)


def test_arrays_and_short_tables_have_none(tmp_path):
    np.save(tmp_path / "x.npy", with_codes(X, -999).reshape(-1, 2))
    pd.DataFrame({"x": [*range(20), -999, -999, -999]}).to_csv(tmp_path / "x.csv", index=False)
    assert strange_values(open_source("npy", path=tmp_path / "x.npy")) == {}
    assert strange_values(open_source("csv", path=tmp_path / "x.csv")) == {}


@pytest.mark.parametrize("far", [[99999.0], [9e4, -7.3e4, 800.0], np.linspace(3e3, 4e3, 20)], ids=["one", "few", "1 %"])
@pytest.mark.parametrize("values", [X, RNG.uniform(0, 38, N), np.rint(X)])
def test_few_values_far_from_all_others_are_described(values, far):
    assert far_values(values) == ""
    held = f"{'numbers such as ' * (len(far) > 1)}{max(far):g} in {len(far)} of {N + len(far):,} rows"
    assert far_values(np.append(values, far)).startswith(f"holds {held}, far from its other values, ")


@pytest.mark.parametrize(
    "values",
    [
        *(pytest.param(np.exp(sigma * RNG.normal(size=N)), id=f"log-normal {sigma}") for sigma in (1, 2, 3)),
        pytest.param(RNG.pareto(1.2, N), id="power law"),
        pytest.param(RNG.standard_cauchy(N), id="long tails on both sides"),
        pytest.param(RNG.negative_binomial(0.2, 0.01, N), id="counts"),
        pytest.param(with_codes(np.zeros(N), 5, 900, share=0.002), id="mostly one value"),
        pytest.param(with_codes(X, -999, share=0.005), id="a code for missing values"),
        pytest.param(with_codes(X, 500, 600, share=0.02), id="more than a few"),
        pytest.param(with_codes(X, 100, share=0.001), id="far, but of little weight"),
    ],
)
def test_long_tails_and_codes_are_not_far(values):
    assert far_values(values) == ""


def test_columns_with_far_values_are_named(tmp_path):
    columns = {"rain": np.append(X, 1e9), "wind": np.append(X, 38.0), "code": np.append(with_codes(X, -999), 1.0)}
    pd.DataFrame(columns).to_csv(tmp_path / "x.csv", index=False)
    found = strange_values(open_source("csv", path=tmp_path / "x.csv"))
    assert list(found) == ["rain", "code"]
    assert found["rain"].startswith("holds 1000000000 in 1 of 2,001 rows, far from its other values, ")
    assert found["code"].startswith("holds -999 in 20 of 2,001 rows, but ")


@pytest.mark.parametrize(("n_columns", "n_found"), [(2, 0), (3, 3), (8, 8)])
def test_nine_beside_answers_from_one_to_five_is_a_code_if_several_columns_have_it(tmp_path, n_columns, n_found):
    answers = {f"Q{i}": with_codes(RNG.integers(1, 6, N), 9) for i in range(n_columns)}
    others = {"visits": with_codes(RNG.integers(0, 6, N), 9), "children": with_codes(RNG.integers(1, 6, N), 7)}
    pd.DataFrame(answers | others).to_csv(tmp_path / "x.csv", index=False)
    found = strange_values(open_source("csv", path=tmp_path / "x.csv"))
    assert list(found) == list(answers)[:n_found]
    assert all(text == "holds 9 in 20 of 2,000 rows, but its other values are from 1 to 5" for text in found.values())


def test_no_copy_beside_one_two_and_their_mean_is_no_code(tmp_path):
    """Numbers of copies of genes, in which the mean of a column fills the gaps."""
    copies = {f"a{i}": with_codes(RNG.choice([0, 1, 2], N, p=[0.2, 0.4, 0.4]), 1.2) for i in range(8)}
    pd.DataFrame(copies).to_csv(tmp_path / "x.csv", index=False)
    assert strange_values(open_source("csv", path=tmp_path / "x.csv")) == {}
