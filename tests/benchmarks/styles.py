"""The styles of each digit: docs/mnist_styles.png, made of the runs of configs/experiments/mnist_digits.yaml.

    python -m tests.benchmarks.styles [--folder runs/experiments/mnist_digits] [--picture docs/mnist_styles.png]

Beside each other the embeddings of the ten digits; some of the images stand where their points are, none over another.
"""

import argparse
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from pipeline.report.figures import INK, POINT, RULE
from pipeline.report.pictures import robust_range
from pipeline.store import Store

SIDE = 28
PATCH = 0.075
"""Side of an image in terms of the axes."""

Array = npt.NDArray[np.float64]


def spread_out(places: Array, gap: float) -> list[int]:
    """Rows of places (n, 2), in random order, each at least `gap` from those before it in one of the two directions."""
    chosen: list[int] = []
    for row in np.random.default_rng(2000).permutation(len(places)):
        if (np.abs(places[chosen] - places[row]).max(axis=1) >= gap).all():
            chosen.append(int(row))
    return chosen


def scaled(embedding: Array) -> Array:
    """Coordinates (n, 2) from 0 to 1 within the range that a few spikes cannot stretch."""
    low, high = np.transpose([robust_range(column) for column in embedding.T])
    return np.asarray((embedding - low) / (high - low))


def draw_digit(ax: Axes, store: Store, name: str) -> None:
    rows, images = store.read_all("original_index"), store.read_all("points")
    embedded = np.flatnonzero(store.read_all("component")[rows] == 0)
    places = scaled(store.read_all("embedding")[rows[embedded]])
    seen = np.flatnonzero(((places >= 0) & (places <= 1)).all(axis=1))
    ax.scatter(*places[seen].T, s=0.5, color=POINT, alpha=0.5, linewidths=0)
    for row in seen[spread_out(places[seen], PATCH)]:
        x, y = places[row]
        ink = images[embedded[row]].reshape(SIDE, SIDE) / images.max()
        patch = np.dstack([np.zeros((SIDE, SIDE, 3)), ink])
        ax.imshow(patch, extent=(x - PATCH / 2, x + PATCH / 2, y - PATCH / 2, y + PATCH / 2), zorder=3)
    ax.set(xlim=(-PATCH / 2, 1 + PATCH / 2), ylim=(-PATCH / 2, 1 + PATCH / 2), aspect="equal", xticks=[], yticks=[])
    ax.set_title(name, loc="left", fontsize=10, color=INK)
    ax.spines[:].set_color(RULE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/experiments/mnist_digits"))
    parser.add_argument("--picture", type=Path, default=Path("docs/mnist_styles.png"))
    arguments = parser.parse_args()
    figure = Figure(figsize=(15, 6.4), dpi=100, layout="constrained")
    for digit, ax in enumerate(figure.subplots(2, 5).flat):
        draw_digit(ax, Store(str(arguments.folder / f"where={digit}.zarr")), str(digit))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white")
    with Image.open(buffer) as image:
        image.convert("RGB").quantize(48).save(arguments.picture, optimize=True)


if __name__ == "__main__":
    main()
