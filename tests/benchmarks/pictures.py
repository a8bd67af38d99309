"""Draw the pictures of README and docs/ with the program itself.

    python -m tests.benchmarks.pictures roll gallery spirals closed_classes noise [--folder docs/images]

roll: the Swiss roll beside its embeddings by lle and ltsa. gallery: the surfaces of configs/experiments, each beside
its embedding. spirals: the two spirals. closed_classes: the drawing of explanations/closed_classes. noise: the Swiss
roll at the noise levels of configs/experiments/noise.yaml. mnist: digits of MNIST (`--mnist DIR` has the IDX files).
"""

import argparse
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from lle import embed
from lle.kernels.graph.connectivity import closed_classes, neighbor_graph
from lle.kernels.manifolds import sample
from lle.report.figure_style import FAINT, INK, RULE
from lle.report.point_colors import robust_range

Array = npt.NDArray[np.float64]

SEED = 7
COLORS = 64
"""Colours of a committed picture; the palette keeps the file small."""


def save(figure: Figure, path: Path) -> None:
    """Write the figure as a PNG with a palette."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white")
    with Image.open(buffer) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def draw_points(
    ax: Axes, points: Array, color: Array, title: str, angles: tuple[float, float] = (8.0, -80.0), zoom: float = 1.35
) -> None:
    """Points (n, 2) or (n, 3), coloured by `color` (n,), far points first."""
    is_finite = np.isfinite(points).all(axis=1)
    points, color = points[is_finite], color[is_finite]
    style: dict[str, Any] = {"c": color, "cmap": "viridis", "s": 700.0 / max(200, len(points)) ** 0.7, "linewidths": 0}
    if points.shape[1] == 3:
        any_ax: Any = ax
        any_ax.scatter(*points.T, **style)
        any_ax.view_init(*angles)
        any_ax.set_box_aspect(np.ptp(points, axis=0), zoom=zoom)
        any_ax.set_axis_off()
    else:
        ax.scatter(*points.T, **style)
        (left, right), (low, high) = map(robust_range, points.T)
        ax.set(xlim=widened(left, right), ylim=widened(low, high), xticks=[], yticks=[])
        ax.spines[:].set_color(RULE)
    ax.set_title(title, fontsize=10, color=INK)


def widened(low: float, high: float) -> tuple[float, float]:
    """A range with a margin on both sides."""
    return low - 0.04 * (high - low), high + 0.04 * (high - low)


def row_of_axes(figure: Figure, row: int, n_rows: int, kinds: str) -> list[Axes]:
    """Axes of one row: '3' for points in space, '2' for a plane."""
    return [
        figure.add_subplot(n_rows, len(kinds), row * len(kinds) + j + 1, projection="3d" if kind == "3" else None)
        for j, kind in enumerate(kinds)
    ]


def draw_roll(folder: Path) -> None:
    n_points = 20_000
    data = sample("swiss_roll", 0, n_points, SEED, 0.0, 0.0)
    section = {"kind": "synthetic", "name": "swiss_roll", "n_points": n_points, "seed": SEED}
    figure = Figure(figsize=(11.5, 3.7), dpi=110, layout="constrained")
    axes = row_of_axes(figure, 0, 1, "322")
    draw_points(axes[0], data.points, data.coordinates[:, 0], "the data: a Swiss roll, 20,000 points in space")
    for ax, method, says in ((axes[1], "lle", "keeps neighbours, not lengths"), (axes[2], "ltsa", "a flat sheet")):
        draw_points(ax, embed(section, method=method), data.coordinates[:, 0], f"method: {method}, K = 12: {says}")
    save(figure, folder / "swiss_roll.png")


SURFACES: tuple[tuple[str, str, int, float, tuple[float, float]], ...] = (
    ("S-curve, 5,000 points", "s_curve", 5000, 0.0, (8.0, -70.0)),
    ("closed sphere, 2,000 points", "punctured_sphere", 2000, 0.0, (20.0, 20.0)),
    ("sphere without a wedge of 0.5 rad", "punctured_sphere", 2000, 0.5, (20.0, 20.0)),
    ("sphere without a wedge of 2 rad", "punctured_sphere", 2000, 2.0, (20.0, 57.0)),
    ("elliptic paraboloid, 2,000 points", "elliptic_paraboloid", 2000, 0.0, (25.0, -60.0)),
    ("cusp z = sqrt(r), 2,000 points", "cusp", 2000, 0.0, (10.0, -60.0)),
)
"""Title, name, points, phi, and the angles of the view."""


def draw_gallery(folder: Path) -> None:
    figure = Figure(figsize=(14.0, 9.0), dpi=90, layout="constrained")
    for place, (title, name, n_points, phi, angles) in enumerate(SURFACES):
        data = sample(name, 0, n_points, SEED, 0.0, phi)
        section = {"kind": "synthetic", "name": name, "n_points": n_points, "seed": SEED, "phi": phi}
        left = figure.add_subplot(3, 4, 2 * place + 1, projection="3d")
        right = figure.add_subplot(3, 4, 2 * place + 2)
        draw_points(left, data.points, data.coordinates[:, 0], title, angles, zoom=1.1)
        draw_points(right, embed(section), data.coordinates[:, 0], "its embedding by lle, K = 12")
    save(figure, folder / "surfaces.png")


def draw_spirals(folder: Path) -> None:
    figure = Figure(figsize=(11.5, 7.0), dpi=90, layout="constrained")
    flat = sample("spiral_2d", 0, 9000, SEED, 0.0, 0.0)
    along = flat.coordinates[:, 0]
    top = row_of_axes(figure, 0, 2, "222")
    draw_points(top[0], flat.points, along, "the data: a plane spiral, 9,000 points")
    section = {"kind": "synthetic", "name": "spiral_2d", "n_points": 9000, "seed": SEED}
    one_coordinate = {"n_components": 1}
    curves = (
        ("lle, K = 20", embed(section, neighbors={"n_neighbors": 20}, eigensolver=one_coordinate)),
        ("pca", embed(section, method="pca", eigensolver=one_coordinate)),
    )
    for ax, (method, embedding) in zip(top[1:], curves, strict=True):
        draw_points(ax, np.column_stack([along, embedding[:, 0]]), along, f"method: {method}, one coordinate")
        ax.set_xlabel("length along the spiral", fontsize=9, color=FAINT)
        ax.set_ylabel("coordinate 1", fontsize=9, color=FAINT)
    rolled = sample("spiral_3d", 0, 15_000, SEED, 0.0, 0.0)
    bottom = row_of_axes(figure, 1, 2, "322")
    draw_points(
        bottom[0],
        rolled.points,
        rolled.coordinates[:, 0],
        "the data: a rolled sheet, 15,000 points",
        (60.0, -60.0),
        zoom=1.1,
    )
    section = {"kind": "synthetic", "name": "spiral_3d", "n_points": 15_000, "seed": SEED}
    for ax, method in zip(bottom[1:], ("lle", "pca"), strict=True):
        embedding = embed(section, method=method, neighbors={"n_neighbors": 40})
        draw_points(ax, embedding, rolled.coordinates[:, 0], f"method: {method}" + ", K = 40" * (method == "lle"))
    save(figure, folder / "spirals.png")


def draw_noise(folder: Path) -> None:
    figure = Figure(figsize=(12.0, 3.2), dpi=90, layout="constrained")
    for ax, noise in zip(row_of_axes(figure, 0, 1, "33333"), (0.0, 0.2, 0.4, 0.6, 1.0), strict=True):
        data = sample("swiss_roll", 0, 2000, SEED, noise, 0.0)
        draw_points(ax, data.points, data.coordinates[:, 0], f"noise {noise:g}", (2.0, -88.0))
    save(figure, folder / "noise_data.png")


def draw_closed_classes(folder: Path) -> None:
    """Three groups of points and their two nearest neighbours; the classes are those that the program finds."""
    left, right = [(0.0, 0.0), (0.9, 0.2), (0.4, 0.9)], [(3.8, 0.05), (4.7, 0.25), (4.2, 0.95)]
    places = np.array([*left, (1.9, 0.55), (2.8, 0.5), *right])
    lists = np.array([(1, 2), (2, 0), (0, 1), (1, 2), (3, 5), (6, 7), (7, 5), (5, 6)])
    classes = closed_classes(neighbor_graph(lists)).class_of_point
    figure = Figure(figsize=(7.6, 2.7), dpi=110, layout="constrained")
    ax = figure.subplots()
    for start, row in enumerate(lists):
        for end in row:
            ax.annotate(
                "",
                places[end],
                places[start],
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": FAINT,
                    "shrinkA": 8,
                    "shrinkB": 8,
                    "connectionstyle": "arc3,rad=0.08",
                },
            )
    for value, color, name in (
        (-1, "#c9ced6", "transient: links lead out"),
        (0, "#2a6f97", "closed class 1: no link leads out"),
        (1, "#d1495b", "closed class 2: no link leads out"),
    ):
        of_class = places[classes == value].T
        ax.scatter(*of_class, s=130, color=color, edgecolors=INK, linewidths=0.8, zorder=3, label=name)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, frameon=False, fontsize=8.5)
    ax.set(xlim=(-0.3, 5.0), ylim=(-0.3, 1.25), aspect="equal")
    ax.set_axis_off()
    ax.set_title("One connected graph, two closed classes: LLE would give two null vectors", fontsize=10, color=INK)
    save(figure, folder / "closed_classes.png")


def draw_mnist(folder: Path, images: Path) -> None:
    with gzip.open(next(images.glob("train-images*.gz"))) as file:
        pixels = np.frombuffer(file.read(16 + 784 * 60), np.uint8, offset=16).reshape(3, 20, 28, 28)
    with Image.fromarray(255 - pixels.transpose(0, 2, 1, 3).reshape(84, 560)) as sheet:
        sheet.save(folder / "mnist_data.png", optimize=True)


DRAWINGS: dict[str, Callable[[Path], None]] = {
    "roll": draw_roll,
    "gallery": draw_gallery,
    "spirals": draw_spirals,
    "noise": draw_noise,
    "closed_classes": draw_closed_classes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*DRAWINGS])
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    parser.add_argument("--mnist", type=Path, help="folder with train-images-idx3-ubyte.gz")
    arguments = parser.parse_args()
    for name in arguments.names:
        DRAWINGS[name](arguments.folder)
    if arguments.mnist:
        draw_mnist(arguments.folder, arguments.mnist)


if __name__ == "__main__":
    main()
