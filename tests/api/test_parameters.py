"""The parameters of the estimator and of embed, and messages about other keywords."""

import numpy as np
import pytest

from lle import LocallyLinearEmbedding, embed
from lle.api.parameters import CONFIG_KEYS, PARAMETERS, sections_of
from tests.support.points import swiss_roll

QUICK = {"quality": {"sample": 50}}


@pytest.fixture(scope="module")
def roll() -> np.ndarray:
    return swiss_roll(300, np.random.default_rng(23)) + np.array([0.0, 30.0, 0.0])


def test_every_parameter_of_the_estimator_is_known():
    assert set(LocallyLinearEmbedding().get_params()) == {*PARAMETERS, "config"}


def test_embed_takes_the_parameters_of_the_estimator(roll):
    parameters = {"n_neighbors": 10, "n_components": 3, "metric": "cosine", "random_state": 0, "reg": 1e-3}
    Y = embed(roll, **parameters, **QUICK)
    assert Y.shape == (300, 3)
    model = LocallyLinearEmbedding(**parameters, config=QUICK).fit(roll)
    np.testing.assert_array_equal(Y, model.embedding_)
    sections = {"neighbors": {"n_neighbors": 10, "metric": "cosine", "seed": 0}, "weights": {"reg": 1e-3}}
    np.testing.assert_array_equal(Y, embed(roll, **sections, eigensolver={"n_components": 3}, **QUICK))
    assert abs(Y - embed(roll, **{**parameters, "metric": "euclidean"}, **QUICK)).max() > 0.1


@pytest.mark.parametrize(
    ("parameter", "value", "section", "key", "expected"),
    [
        ("eigen_solver", "arpack", "eigensolver", "method", "shift_invert"),
        ("eigen_solver", "dense", "eigensolver", "method", "auto"),
        ("scale", "unit_norm", "embedding", "scale", "unit_norm"),
        ("eigen_solver", "multigrid", "eigensolver", "method", "multigrid"),
        ("neighbors_algorithm", "kd_tree", "neighbors", "method", "kdtree"),
        ("neighbors_algorithm", "ball_tree", "neighbors", "method", "kdtree"),
        ("neighbors_algorithm", "brute", "neighbors", "method", "brute"),
        ("n_jobs", 1, "execution", "cluster", {"kind": "serial"}),
        ("n_jobs", -1, "execution", "cluster", {"kind": "local", "workers": "auto"}),
        ("n_neighbors", np.int64(7), "neighbors", "n_neighbors", 7),
    ],
)
def test_parameter_sets_its_config_key(parameter, value, section, key, expected):
    assert CONFIG_KEYS[parameter] == (section, key)
    assert sections_of({parameter: value}, {section: {"other": 1}}) == {section: {"other": 1, key: expected}}


def test_method_of_scikit_learn_is_lle():
    assert sections_of({"method": "standard", "metric": None}, None) == {"method": "lle"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"eigen_solver": "lobpcg"}, "eigensolver.method: should be 'auto'"),
        ({"metric": "manhattan"}, "neighbors.metric: should be 'euclidean' or 'cosine'; found 'manhattan'"),
        ({"metric": "cosine", "neighbors": {"metric": "cosine"}}, "neighbors.metric is the parameter metric"),
        ({"scale": "standard"}, "embedding.scale: should be 'unit_covariance' or 'unit_norm'; found 'standard'"),
        ({"pca": 3}, r"it is a key of a section of the config: preprocess=\{'pca': 3\}"),
        ({"n_neighbours": 4}, "there is no parameter 'n_neighbours'; did you mean n_neighbors?"),
        ({"input": {"kind": "npy"}}, "the section input is not allowed beside X"),
    ],
)
def test_error_of_embed_names_the_section_of_a_key(roll, parameters, message):
    with pytest.raises(ValueError, match=message):
        embed(roll, **parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seed": 3}, r"config=\{'neighbors': \{'seed': 3\}\} or config=\{'quality'"),
        ({"n_neighbor": 4}, "did you mean n_neighbors?"),
        ({"confg": {}}, "did you mean config?"),
        ({"graph": {}}, r"'graph'; it is a section of the config: config=\{'graph': \{\}\}"),
    ],
)
def test_error_of_estimator_names_the_section_of_a_key(parameters, message):
    with pytest.raises(TypeError, match=message):
        LocallyLinearEmbedding(**parameters)
