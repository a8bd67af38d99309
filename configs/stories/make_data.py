"""Write the tables of the five stories of docs/stories.md, one Parquet file each.

    python configs/stories/make_data.py [FOLDER] [--rows N]

FOLDER is runs/stories if left out. All but `images` are generated, with N rows; `images` are the 1,797 digits of
scikit-learn. What the run does not see, such as the true speed of the motor, is in NAME_truth.parquet.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.datasets import load_digits

SEED = 7

Array = npt.NDArray[np.float64]


def table(name: str, values: Array, **others: npt.ArrayLike) -> pd.DataFrame:
    """Columns name_0, name_1, ... for the values (n, d), and the others (n,) behind them."""
    features = pd.DataFrame(values.astype(np.float32), columns=[f"{name}_{j}" for j in range(values.shape[1])])
    return features.assign(**others)


def spectra(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Spectra of galaxies: emission lines, shifted to the red by the distance and of any strength, and noise."""
    redshift, strength = rng.uniform(0, 0.3, n), rng.uniform(0.4, 1, n)
    wavelength = np.linspace(350.0, 900.0, 150)
    flux = np.full((n, 150), 0.2)
    for line, height in ((373.0, 0.5), (434.0, 0.3), (486.0, 0.6), (501.0, 0.9), (656.0, 1.0)):
        shifted = line * (1 + redshift[:, None])
        flux += height * strength[:, None] * np.exp(-(((wavelength - shifted) / 9.0) ** 2))
    flux += 0.03 * rng.normal(size=flux.shape)
    return table("flux", flux, redshift=redshift)


def motion(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Ten joint angles in degrees of a walking figure: any moment of a step, at a pace of 1 to 2 metres a second."""
    phase, pace = rng.uniform(0, 2 * np.pi, n), rng.uniform(1, 2, n)
    size, lag = rng.uniform(5, 30, (2, 10)), rng.uniform(0, 2 * np.pi, (2, 10))
    swing = np.sin(phase[:, None] + lag[0]) * size[0] + 0.4 * np.sin(2 * phase[:, None] + lag[1]) * size[1]
    angles = swing * pace[:, None] + rng.normal(size=(n, 10))
    return table("joint", angles, phase=phase, true_pace=pace)


def images(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """The first n digits of scikit-learn, 8 x 8 pixels."""
    pixels, digit = load_digits(return_X_y=True)
    return table("pixel", pixels[:n], digit=[f"digit {value}" for value in digit[:n]])


def sensor(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Loudness in 40 bands of a motor, minute by minute: the speed is any, a bearing wears out."""
    wear, speed = np.linspace(0, 1, n) ** 2, rng.uniform(0, 1, n)
    band = np.arange(40)
    hum = sum(np.exp(-(((band - k * (6 + 3 * speed[:, None])) / 2.5) ** 2)) / k for k in (1, 2, 3))
    hiss = wear[:, None] * np.exp(-(((band - 33) / 4.0) ** 2))
    levels = 20 * np.log10(0.1 + hum + hiss) + rng.normal(size=(n, 40))
    return table("band", levels, minute=np.arange(n), true_wear=wear, true_speed=speed)


def cells(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Counts of 150 genes in cells that mature along a trunk, which divides into two branches at age 0.4.

    Counts are divided by the number of molecules of the cell, then log1p is taken, as for real cells.
    """
    age, branch, branch_of_gene = rng.uniform(0, 1, n), rng.integers(0, 2, n), rng.integers(0, 3, 150)
    in_trunk = np.clip(1 - 3 * (age[:, None] - 0.4), 0, 1)
    share = np.where((branch_of_gene == 2) | (branch_of_gene == branch[:, None]), 1.0, in_trunk)
    activity = 0.05 + share * np.exp(-(((age[:, None] - rng.uniform(-0.2, 1.2, 150)) / 0.25) ** 2))
    counts = rng.poisson(4 * rng.lognormal(0, 0.3, (n, 1)) * activity)
    stage = np.where(age < 0.4, "trunk", np.where(branch == 0, "branch A", "branch B"))
    return table("gene", np.log1p(300 * counts / counts.sum(axis=1, keepdims=True)), stage=stage, true_age=age)


STORIES: dict[str, Callable[[int, np.random.Generator], pd.DataFrame]] = {
    "spectra": spectra,
    "motion": motion,
    "images": images,
    "sensor": sensor,
    "cells": cells,
}


def write(name: str, n_rows: int, folder: Path) -> pd.DataFrame:
    """Write the table of a story, and what the run does not see into a second one; return both."""
    rows = STORIES[name](n_rows, np.random.default_rng(SEED))
    is_truth = rows.columns.str.startswith("true_")
    folder.mkdir(parents=True, exist_ok=True)
    rows.loc[:, ~is_truth].to_parquet(folder / f"{name}.parquet")
    if is_truth.any():
        rows.loc[:, is_truth].to_parquet(folder / f"{name}_truth.parquet")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/stories"))
    parser.add_argument("--rows", type=int, default=3000)
    arguments = parser.parse_args()
    for name in STORIES:
        write(name, arguments.rows, arguments.folder)
        print(arguments.folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
