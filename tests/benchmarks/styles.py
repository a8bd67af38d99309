"""Styles of each digit: docs/images/mnist_styles.png, and the correlation of coordinates with the slant of the digits.

    python -m tests.benchmarks.styles runs/experiments/mnist.zarr
    python -m tests.benchmarks.styles runs/experiments/mnist_digits/*.zarr --picture docs/images/mnist_styles.png

Reads runs of configs/experiments/mnist.yaml or mnist_digits.yaml. For each digit it prints the mean of each coordinate,
the digit's share of the coordinate's variance, and the correlation with the slant (horizontal shift a row, from the
second moments of the ink). The picture has the runs beside each other, and some of the images where their points are.
"""

import argparse
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from lle.report.figure_style import INK, POINT, RULE
from lle.report.point_colors import robust_range
from lle.storage.store import Store

SIDE, COLUMNS = 28, 5
PATCH = 0.075
"""Side of an image in terms of the axes."""

Array = npt.NDArray[np.float64]


def slant(images: Array) -> Array:
    """By how many pixels each of the images (n, SIDE * SIDE) moves to the right a row down: (n,)."""
    down, right = (axis.ravel() - (SIDE - 1) / 2 for axis in np.mgrid[:SIDE, :SIDE])
    ink = images / images.sum(axis=1, keepdims=True)
    centre_down, centre_right = ink @ down, ink @ right
    return np.asarray((ink @ (down * right) - centre_down * centre_right) / (ink @ down**2 - centre_down**2))


def read_points(store: Store) -> tuple[Array, Array, Array]:
    """Coordinates (n, m), images (n, SIDE * SIDE) and digits (n,) of the distinct points of the largest component."""
    rows = store.read_all("original_index")
    embedded = store.read_all("component")[rows] == 0
    images = store.read_all("points")[embedded].astype(np.float64)
    return store.read_all("embedding")[rows[embedded]], images, store.read_all("label")[rows[embedded], 0]


def slant_rows(embedding: Array, images: Array, digits: Array) -> list[str]:
    """A row of the table for each digit."""
    total, rows = np.square(embedding - embedding.mean(axis=0)).sum(axis=0), []
    for digit in np.unique(digits):
        members, slants = embedding[digits == digit], slant(images[digits == digit])
        share = np.square(members - embedding.mean(axis=0)).sum(axis=0) / total
        cells = [
            f"{members[:, j].mean():.2f} | {share[j]:.0%} | {np.corrcoef(members[:, j], slants)[0, 1]:.2f}"
            for j in range(members.shape[1])
        ]
        rows.append(f"| {digit:g} | {len(members):,} | " + " | ".join(cells) + " |")
    return rows


def spread_out(places: Array, gap: float) -> list[int]:
    """Rows of places (n, 2), in random order, each at least `gap` from those before it in one of the two directions."""
    chosen: list[int] = []
    for row in np.random.default_rng(2000).permutation(len(places)):
        if (np.abs(places[chosen] - places[row]).max(axis=1) >= gap).all():
            chosen.append(int(row))
    return chosen


def scaled(embedding: Array) -> Array:
    """Coordinates (n, 2) scaled to 0 .. 1 over a robust range."""
    low, high = np.transpose([robust_range(column) for column in embedding.T])
    return np.asarray((embedding - low) / (high - low))


def draw_styles(ax: Axes, embedding: Array, images: Array, name: str) -> None:
    """The points, and images over some of them."""
    places = scaled(embedding[:, :2])
    in_view = np.flatnonzero(((places >= 0) & (places <= 1)).all(axis=1))
    ax.scatter(*places[in_view].T, s=0.5, color=POINT, alpha=0.5, linewidths=0)
    for row in in_view[spread_out(places[in_view], PATCH)]:
        x, y = places[row]
        patch = np.dstack([np.zeros((SIDE, SIDE, 3)), images[row].reshape(SIDE, SIDE) / images.max()])
        ax.imshow(patch, extent=(x - PATCH / 2, x + PATCH / 2, y - PATCH / 2, y + PATCH / 2), zorder=3)
    ax.set(xlim=(-PATCH / 2, 1 + PATCH / 2), ylim=(-PATCH / 2, 1 + PATCH / 2), aspect="equal", xticks=[], yticks=[])
    ax.set_title(name, loc="left", fontsize=10, color=INK)
    ax.spines[:].set_color(RULE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    n_rows = -(-len(arguments.stores) // COLUMNS)
    figure = Figure(figsize=(3 * COLUMNS, 3.2 * n_rows), dpi=100, layout="constrained")
    axes = figure.subplots(n_rows, COLUMNS, squeeze=False).ravel()
    print("| digit | points | mean of 1 | share | slant | mean of 2 | share | slant |")
    print("|---" * 8 + "|")
    for url, ax in zip(sorted(arguments.stores), axes, strict=False):
        embedding, images, digits = read_points(Store(url))
        print(*slant_rows(embedding, images, digits), sep="\n")
        if arguments.picture:
            draw_styles(ax, embedding, images, ", ".join(f"{digit:g}" for digit in np.unique(digits)))
    if arguments.picture:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", facecolor="white")
        with Image.open(buffer) as image:
            image.convert("RGB").quantize(48).save(arguments.picture, optimize=True)


if __name__ == "__main__":
    main()
