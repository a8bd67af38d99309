import numpy as np
import pytest

from lle.kernels.eigensolver import factor_cost, pardiso
from lle.kernels.eigensolver.method_choice import chosen, predict
from lle.kernels.eigensolver.solve import ROUTES, bottom_eigenpairs
from tests.support.sampled_factors import edge_factor, gram, lle_factor, points, roll_factor
from tests.support.seeds import seeds

PLENTY = 2**33

needs_mkl = pytest.mark.skipif(not pardiso.is_available(), reason="only PARDISO analyses before it factors")


@needs_mkl
@pytest.mark.parametrize("seed", seeds(3, 19))
def test_prediction_equals_the_cost_of_the_solve(seed):
    A = roll_factor(3000, seed)
    predicted = {prediction.method: prediction for prediction in predict(A, gram(A), ROUTES, 2, 0, PLENTY, 1)}
    assert list(predicted) == ["factored", "multigrid", "shift_invert", "polynomial"]
    for method, prediction in [(name, predicted[name]) for name in ("factored", "shift_invert")]:
        spectrum = bottom_eigenpairs(
            A, 2, method=method, pin=0, cost_matrix=lambda: gram(A), tol=1e-8, max_memory=PLENTY,
            n_threads=1, initial=None, max_degrees=1,
        )  # fmt: skip
        assert prediction.factor_nnz == pytest.approx(spectrum.stats.factor_nnz, rel=0.01)
        assert prediction.predicted_bytes == pytest.approx(spectrum.stats.predicted_bytes, rel=0.01)
        assert prediction.basis == "analysis"
        assert 0 < prediction.seconds < 10


@needs_mkl
def test_first_method_that_fits_and_is_fast_is_chosen():
    A = lle_factor(points("cube", 3000, 3), 12, 1e-3)
    predicted = predict(A, gram(A), ROUTES, 2, 0, PLENTY, 1)
    assert chosen(predicted, 600).method == "factored"
    assert chosen(predicted, 0.0).method == "multigrid"
    needed = predicted[0].predicted_bytes
    in_single = predict(A, None, ROUTES, 2, 0, needed - 1, 1)[0]
    assert (in_single.method, in_single.fits) == ("factored", True)
    tight = predict(A, None, ROUTES, 2, 0, in_single.predicted_bytes - 1, 1)
    assert [prediction.fits for prediction in tight] == [False, True, True]
    assert chosen(tight, 600).method == "multigrid"
    assert chosen(predict(A, None, ROUTES, 2, 0, 1000, 1), 600).method == "polynomial"


def test_lu_is_not_predicted_for_factors_that_are_not_square():
    A = edge_factor(points("sheet", 500, 3), 5)
    assert [prediction.method for prediction in predict(A, gram(A), ROUTES, 2, 0, PLENTY, 1)] == [
        "shift_invert",
        "polynomial",
    ]


@needs_mkl
def test_pieces_predict_bytes_and_work(monkeypatch):
    A = lle_factor(points("cube", 12_000, 3), 12, 1e-3)
    [exact, *_] = predict(A, None, ROUTES, 2, 6_000, PLENTY, 1)
    monkeypatch.setattr(factor_cost, "MIN_ROWS", 10_000)
    monkeypatch.setattr(factor_cost, "PIECES", (1_500, 6_000))
    [message, *_] = predict(A, None, ROUTES, 2, 6_000, PLENTY, 1)
    assert (exact.basis, message.basis) == ("analysis", "pieces")
    for name in ("factor_nnz", "gflop", "predicted_bytes"):
        assert 0.6 < getattr(message, name) / getattr(exact, name) < 1.6, name


def test_more_work_takes_longer():
    size = pardiso.FactorSize(10**6, 10**7, 1.0)
    hard = size._replace(gflop=100.0)
    assert factor_cost.factor_seconds(hard, 10**5, 10, 1) > factor_cost.factor_seconds(size, 10**5, 10, 1)
    assert factor_cost.factor_seconds(size, 10**5, 10, 4) < factor_cost.factor_seconds(size, 10**5, 10, 1)
    assert np.isclose(factor_cost.product_seconds(10**6, 8, 2), factor_cost.product_seconds(10**6, 4, 1))
