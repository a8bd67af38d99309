"""The five stories of docs/stories.md: make their tables, run their configs, print what one learns, keep the pictures.

python -m tests.benchmarks.stories [spectra ...] [--rows 3000] [--pictures docs/images]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image
from scipy.spatial import cKDTree
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from lle.config.load import load_config
from lle.engine.progress import RunProgress
from lle.jobs.run import run
from lle.storage.store import Store
from tests.support.paths import REPOSITORY, load_script

FOLDER = REPOSITORY / "configs" / "stories"
PICTURE_PIXELS = (740, 560)
NEIGHBORS = 12

Array = npt.NDArray[np.float64]


def order(values: Array, truth: npt.ArrayLike) -> float:
    """Absolute rank correlation."""
    return float(abs(spearmanr(values, truth)[0]))


def principal_orders(rows: pd.DataFrame, truth: str) -> list[float]:
    """Rank correlation of each of the first two principal components of the features with a column."""
    features = rows[[name for name in rows if "_" in name and not name.startswith("true_")]]
    return [order(column, rows[truth]) for column in PCA(2).fit_transform(features.to_numpy(np.float64)).T]


def learn_spectra(rows: pd.DataFrame, y: Array) -> dict[str, float]:
    return {
        "order of coordinate 1 by redshift": order(y[:, 0], rows.redshift),
        "of the better principal component": max(principal_orders(rows, "redshift")),
    }


def learn_motion(rows: pd.DataFrame, y: Array) -> dict[str, float]:
    """Resultant length of the difference of the angle around the ring and the phase: 1 if it is constant."""
    centre = (y.max(axis=0) + y.min(axis=0)) / 2
    angle, radius = np.arctan2(*(y - centre).T[::-1]), np.hypot(*(y - centre).T)
    turns = [abs(np.exp(1j * (angle + sign * rows.phase.to_numpy())).mean()) for sign in (1, -1)]
    return {"agreement of angle and phase": float(max(turns)), "order of radius by pace": order(radius, rows.true_pace)}


def learn_images(rows: pd.DataFrame, y: Array) -> dict[str, float]:
    """Shares of the neighbours of each digit that show another one: the three largest."""
    digit = rows.digit.to_numpy()
    near = digit[np.asarray(cKDTree(y).query(y, NEIGHBORS + 1)[1])[:, 1:]]
    pairs = {(a, b): float((near[digit == a] == b).mean()) for a in set(digit) for b in set(digit) if a != b}
    mixed = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:3]
    return {
        "neighbours of the same digit": float((near == digit[:, None]).mean()),
        **{f"{b} among the neighbours of {a}": pairs[a, b] for a, b in mixed},
    }


def learn_sensor(rows: pd.DataFrame, y: Array) -> dict[str, float]:
    return {
        "order of coordinate 1 by speed": order(y[:, 0], rows.true_speed),
        "order of coordinate 2 by wear": order(y[:, 1], rows.true_wear),
    }


def learn_cells(rows: pd.DataFrame, y: Array) -> dict[str, float]:
    """Distance from the end of the trunk in the picture, and the age."""
    start = np.median(y[np.argsort(rows.true_age.to_numpy())[: len(y) // 50]], axis=0)
    reach = np.hypot(*(y - start).T)
    branches = [rows.stage == name for name in ("branch A", "branch B")]
    return {
        "order of the cells of branch A by age": order(reach[branches[0]], rows.true_age[branches[0]]),
        "order of the cells of branch B by age": order(reach[branches[1]], rows.true_age[branches[1]]),
    }


LEARN: dict[str, Callable[[pd.DataFrame, Array], dict[str, float]]] = {
    "spectra": learn_spectra,
    "motion": learn_motion,
    "images": learn_images,
    "sensor": learn_sensor,
    "cells": learn_cells,
}


def tell(name: str, n_rows: int, folder: Path, overrides: tuple[str, ...] = ()) -> dict[str, float]:
    """Run one story in a folder; what one learns, and the trustworthiness."""
    rows = load_script(FOLDER / "make_data.py").write(name, n_rows, folder)
    places = (f"input.path={folder}/{name}.parquet", f"output.store={folder}/{name}.zarr")
    result = run(load_config(FOLDER / f"{name}.yaml", (*places, *overrides)), False, RunProgress())
    embedding = Store(result.store).read_all("embedding")
    return {**LEARN[name](rows, embedding), "trustworthiness": result.metrics["trustworthiness"]["value"]}


def keep_picture(store: Path, path: Path) -> None:
    """The picture of a run's report, smaller and with a palette, which keeps the colours of small classes."""
    with Image.open(store / "report" / "embedding.png") as image:
        small = image.convert("RGB").resize(PICTURE_PIXELS, Image.Resampling.LANCZOS)
        small.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="STORY")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--folder", type=Path, default=Path("runs/stories"))
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    for name in arguments.names or LEARN:
        for what, value in tell(name, arguments.rows, arguments.folder).items():
            print(f"{name}: {what} {value:.3f}", flush=True)
        if arguments.pictures:
            keep_picture(arguments.folder / f"{name}.zarr", arguments.pictures / f"story_{name}.png")


if __name__ == "__main__":
    main()
