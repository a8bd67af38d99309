"""Generated inputs: the built-in manifolds, and scikit-learn's handwritten digits."""

from functools import lru_cache

import numpy as np

from ..core.arrays import Float64
from ..kernels.manifolds import MANIFOLDS, sample
from ..storage.bundles import Array
from .base import Coding, Fingerprint, Source


def open_synthetic(
    name: str, n_points: int | None = None, noise: float = 0.0, seed: int = 0, phi: float = 0.0
) -> Source:
    """A built-in manifold, labelled with its ground-truth coordinates, or digits, labelled 0 to 9."""
    if name == "digits":
        return DigitsSource()
    assert n_points is not None
    return ManifoldSource(name, n_points, noise, seed, phi)


class ManifoldSource(Source):
    """The first n_points of a manifold's infinite sequence."""

    dtype = np.dtype(np.float64)

    def __init__(self, name: str, n_points: int, noise: float, seed: int, phi: float) -> None:
        self.n_rows = n_points
        self.n_features, self._n_coordinates = MANIFOLDS[name]
        self.labels = Coding("continuous", width=self._n_coordinates)
        self._name, self._seed, self._noise, self._phi = name, seed, noise, phi

    def _read(self, start: int, stop: int) -> Array:
        return sample(self._name, start, stop, self._seed, self._noise, self._phi).points

    def _read_labels(self, start: int, stop: int) -> Float64:
        coordinates = sample(self._name, start, stop, self._seed, self._noise, self._phi).coordinates
        return coordinates[:, 0] if self._n_coordinates == 1 else coordinates

    def fingerprint(self) -> Fingerprint:
        return {"name": self._name, "n_points": self.n_rows, "noise": self._noise, "seed": self._seed, "phi": self._phi}


class DigitsSource(Source):
    """1797 digits of 8 x 8 pixels (0 to 16) that come with scikit-learn."""

    dtype = np.dtype(np.float64)
    n_rows, n_features = 1797, 64
    image_shape = (8, 8)
    labels = Coding("categorical", tuple("0123456789"))

    def _read(self, start: int, stop: int) -> Array:
        return _digits()[0][start:stop].copy()

    def _read_labels(self, start: int, stop: int) -> Float64:
        return _digits()[1][start:stop].copy()

    def fingerprint(self) -> Fingerprint:
        return {"name": "digits"}


@lru_cache(maxsize=1)
def _digits() -> tuple[Float64, Float64]:
    from sklearn.datasets import load_digits  # the import takes two seconds

    images, digits = load_digits(return_X_y=True)
    return np.ascontiguousarray(images, np.float64), np.asarray(digits, np.float64)
