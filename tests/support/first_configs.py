"""Tables for the tests of `lle init`, and the configs that it writes."""

import numpy as np
import pandas as pd

from lle.config.load import load_config
from tests.support.commands import lle

N = 600
RNG = np.random.default_rng(23)
X = RNG.normal(size=(N, 3))
CLASSES = RNG.integers(0, 4, N)


def frame(**columns) -> pd.DataFrame:
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(**columns)


def write_table(path, table: pd.DataFrame) -> str:
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)
    return str(path)


def config_of(tmp_path, data, name="job.yaml"):
    """The config that init writes; a second command validates it."""
    out = tmp_path / name
    written = lle("init", data, "-o", out)
    assert lle("validate", out)["n_input"] == written["n_input"]
    return load_config(out)
