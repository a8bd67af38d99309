"""The types of the public names, as mypy reports them for a user's script."""

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pipeline"
SCRIPT = """
from typing import assert_type
import numpy as np
import numpy.typing as npt
import lle

X = np.ones((30, 3))
assert_type(lle.embed(X, n_neighbors=10, preprocess={"scale": "standard"}), npt.NDArray[np.float64])
model = lle.LocallyLinearEmbedding(method="ltsa").fit(X)
assert_type(model.embedding_, npt.NDArray[np.float64])
assert_type(lle.open_run("x.zarr").store, str)
assert_type(lle.__version__, str)
lle.embed(X, n_neigbors=10)
lle.LocallyLinearEmbedding(n_neigbors=10)
lle.plot(X, colour=[1])
lle.fit(X)
"""


@pytest.mark.slow
def test_results_have_types_and_wrong_names_are_errors(tmp_path):
    (tmp_path / "lle").symlink_to(PACKAGE)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache", "script.py"]
    found = subprocess.run(command, cwd=tmp_path, env={"MYPYPATH": str(tmp_path)}, capture_output=True, text=True)
    lines = [line.split(":")[1] for line in found.stdout.splitlines() if ": error:" in line]
    first_wrong = SCRIPT.splitlines().index("lle.embed(X, n_neigbors=10)") + 1
    assert lines == [str(first_wrong + number) for number in range(4)], found.stdout
