"""Programs written for scikit-learn's LLE run on ours: its tests, its gallery, every value of its parameters."""

import inspect
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import manifold
from sklearn.datasets import load_digits, make_s_curve, make_swiss_roll
from sklearn.neighbors import NearestNeighbors

import lle
from lle.core.machine import available_cores
from tests.support.oracle import largest_angle
from tests.support.paths import REPOSITORY
from tests.support.points import swiss_roll

K, REG = {"n_neighbors": 12, "n_components": 2}, {"reg": 1e-3}
PLAIN = {"neighbors": {"reverse": 0}, "quality": {"sample": 50}}
ACCEPTED: dict[str, list[Any]] = {
    "n_neighbors": [9],
    "n_components": [3],
    "reg": [0.1],
    "eigen_solver": ["auto", "arpack", "dense"],
    "tol": [0, 1e-3],
    "max_iter": [1, 1000],
    "method": ["standard", "modified", "ltsa"],
    "neighbors_algorithm": ["auto", "brute", "kd_tree", "ball_tree"],
    "random_state": [None, 7],
    "n_jobs": [None, 1, -1, 8, -2 - available_cores()],
}
"""Values that scikit-learn accepts. Its hessian is its ltsa, see `test_hessian_tol_has_no_effect`."""


@pytest.fixture(scope="module")
def roll() -> np.ndarray:
    return swiss_roll(450, np.random.default_rng(29))


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        *({name: value} for name, values in ACCEPTED.items() for value in values),
        {"method": "modified", "modified_tol": 0},
        pytest.param({"random_state": np.random.RandomState(7)}, id="random_state-object"),
    ],
    ids=str,
)
def test_accepted_values_give_the_embedding_of_scikit_learn(roll, parameters):
    given = {**K, **REG, **parameters}
    exact = {"eigen_solver": "dense"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = lle.LocallyLinearEmbedding(**given, scale="unit_norm", config=PLAIN).fit(roll)
    reference = manifold.LocallyLinearEmbedding(**{**given, **exact, "n_jobs": None}).fit(roll)
    assert largest_angle(model.embedding_, reference.embedding_) < 0.1
    np.testing.assert_allclose(np.linalg.norm(model.embedding_, axis=0), 1.0)
    assert model.reconstruction_error_ == pytest.approx(reference.reconstruction_error_, rel=1e-3)
    np.testing.assert_array_equal(model.transform(roll[:5]), model.embedding_[:5])


@pytest.mark.slow
def test_hessian_tol_has_no_effect(roll):
    """And neighbours are kept as well as with scikit-learn's hessian, which is its ltsa."""
    embeddings = [
        module.LocallyLinearEmbedding(**K, method="hessian", **parameters).fit_transform(roll)
        for module, parameters in ((lle, {}), (lle, {"hessian_tol": 1e-4}), (manifold, {"eigen_solver": "dense"}))
    ]
    np.testing.assert_array_equal(embeddings[0], embeddings[1])
    ours, theirs = (manifold.trustworthiness(roll, Y, n_neighbors=12) for Y in embeddings[1:])
    assert ours > theirs - 0.005


def test_reg_of_zero_gives_the_limit_of_small_reg(roll):
    small, zero = (lle.locally_linear_embedding(roll, **K, reg=reg)[0] for reg in (1e-10, 0))
    assert largest_angle(small, zero) < 0.1


@pytest.mark.parametrize("name", ["max_iter", "hessian_tol", "modified_tol"])
@pytest.mark.parametrize("value", [-1, "1e-3", float("nan")])
def test_values_that_scikit_learn_refuses_are_refused(roll, name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a number that is not negative, found"):
        lle.LocallyLinearEmbedding(**{name: value}).fit(roll)


class TestFunction:
    def test_signature_is_that_of_scikit_learn(self):
        ours, theirs = (inspect.signature(module.locally_linear_embedding) for module in (lle, manifold))
        assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
            (p.name, p.kind, p.default) for p in theirs.parameters.values()
        ]

    def test_result_is_that_of_scikit_learn(self, roll):
        """Of rows, and of a NearestNeighbors with these rows."""
        reference, squared_error = manifold.locally_linear_embedding(roll, **K, method="ltsa", eigen_solver="dense")
        for X in (roll, roll.tolist(), NearestNeighbors().fit(roll)):
            Y, error = lle.locally_linear_embedding(X, **K, method="ltsa")
            assert largest_angle(Y, reference) < 0.1
            np.testing.assert_allclose(np.linalg.norm(Y, axis=0), 1.0)
            assert error == pytest.approx(squared_error, rel=1e-3)

    def test_equal_rows_raise_the_error_that_scikit_learn_raises(self):
        with pytest.raises(ValueError, match=r"Error in determining null-space with ARPACK: .* 1 distinct point, "):
            lle.locally_linear_embedding(np.ones((200, 3)), n_neighbors=2, n_components=1)

    def test_errors_of_parameters_are_not_blamed_on_the_rows(self, roll):
        with pytest.raises(ValueError, match=r"^config:\n  - method: should be"):
            lle.locally_linear_embedding(roll, **K, method="tsne")


@pytest.mark.slow
def test_scikit_learns_tests_pass_with_warnings_as_errors():
    """All 24, in float32 and float64, with our class and function in the place of its own."""
    options = "-q -c /dev/null --rootdir / -W error -p no:cacheprovider -p tests.support.in_place_of_sklearn"
    arguments = [*options.split(), "--pyargs", "sklearn.manifold.tests.test_locally_linear"]
    environment = {**os.environ, "SKLEARN_RUN_FLOAT32_TESTS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "pytest", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "24 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", ["standard", "ltsa", "hessian", "modified"])
class TestGallery:
    """The calls of scikit-learn's gallery; neighbourhoods are kept as well as by its own class, to 0.01."""

    def compare(self, X: np.ndarray, **parameters: Any) -> None:
        embeddings = [m.LocallyLinearEmbedding(**parameters).fit_transform(X) for m in (lle, manifold)]
        k = parameters["n_neighbors"]
        ours, theirs = (manifold.trustworthiness(X, Y, n_neighbors=k) for Y in embeddings)
        assert ours > theirs - 0.01

    def test_comparison_of_manifold_learning(self, method):
        X = make_s_curve(1500, random_state=0)[0]
        self.compare(X, n_neighbors=12, n_components=2, eigen_solver="auto", random_state=0, method=method)

    def test_handwritten_digits(self, method):
        X = load_digits(n_class=6).data
        self.compare(X, n_neighbors=30, n_components=2, method=method)

    def test_severed_sphere(self, method):
        random_state = np.random.RandomState(0)
        p, t = random_state.rand(1000) * (2 * np.pi - 0.55), random_state.rand(1000) * np.pi
        kept = (t < np.pi - np.pi / 8) & (t > np.pi / 8)
        X = np.column_stack([np.sin(t) * np.cos(p), np.sin(t) * np.sin(p), np.cos(t)])[kept]
        self.compare(X, n_neighbors=10, n_components=2, method=method, random_state=42)


@pytest.mark.slow
@pytest.mark.parametrize("hole", [False, True])
def test_swiss_roll_of_the_gallery_is_that_of_scikit_learn(hole):
    X = make_swiss_roll(n_samples=1500, hole=hole, random_state=0)[0]
    ours, theirs = (m.locally_linear_embedding(X, n_neighbors=12, n_components=2) for m in (lle, manifold))
    assert ours[1] <= theirs[1] * 1.01
    assert manifold.trustworthiness(X, ours[0]) > manifold.trustworthiness(X, theirs[0]) - 0.01
