"""Input that changes during the read: all rows are of one state, or the run fails and the next one succeeds."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr

from lle.core.errors import InputChanged, InputError
from lle.engine import checkpoint
from lle.inputs import open_source
from lle.inputs.consistency import one_state
from lle.search import variable_neighborhoods
from lle.stages import embed_new, ingest
from lle.storage.store import Store
from lle.storage.versions import Versions
from tests.support.commands import FEW, lle, refused, write_config
from tests.support.points import swiss_roll
from tests.support.stored import read_blocks

N, BLOCK = 600, 200


@pytest.fixture
def points():
    return swiss_roll(N + 100, np.random.default_rng(29))


@pytest.fixture
def folder(tmp_path, points):
    """Two files of 300 rows."""
    path = tmp_path / "in"
    path.mkdir()
    np.save(path / "b.npy", points[:300])
    np.save(path / "c.npy", points[300:N])
    return path


@pytest.fixture
def during(monkeypatch):
    """`during(block, act)`: call `act` once, as soon as this block of the input is read."""

    def arrange(chosen_block, act):
        read = ingest.read_block

        def reading(store, block, **parameters):
            report = read(store, block, **parameters)
            if block == chosen_block:
                monkeypatch.setattr(ingest, "read_block", read)
                act()
            return report

        monkeypatch.setattr(ingest, "read_block", reading)

    return arrange


def config(tmp_path: Path, keep: int | None, **source) -> Path:
    source = source or {"kind": "npy", "path": str(tmp_path / "in" / "*.npy")}
    return write_config(
        tmp_path, input=source, output={"keep": keep, "report": False}, execution={"block_points": BLOCK}, **FEW
    )


def raw(result) -> np.ndarray:
    return Store(result["store"]).read_all("_work/raw")


@pytest.mark.parametrize("keep", [None, 2])
def test_file_added_before_others_during_the_read_is_detected(toy_stages, tmp_path, points, folder, during, keep):
    """The new file shifts later rows: without the check some rows would be read twice, and the last ones never."""
    job = config(tmp_path, keep)
    during(0, lambda: np.save(folder / "a.npy", points[N:]))
    assert "changed, added or removed while they were read" in refused(1, "run", job)
    if keep:
        assert Versions(str(tmp_path / "run.zarr")).pointer() is None
    np.testing.assert_array_equal(raw(lle("run", job)), np.concatenate([points[N:], points[:N]]))


@pytest.mark.parametrize("keep", [None, 2])
def test_file_added_and_deleted_during_a_read_is_detected(
    toy_stages, tmp_path, points, folder, during, monkeypatch, keep
):
    """At the end the input is as at the beginning, but the second block was read from another state."""
    job, read = config(tmp_path, keep), ingest.read_block

    def reading(store, block, **parameters):
        if block == 1:
            np.save(folder / "a.npy", points[N:])
        report = read(store, block, **parameters)
        (folder / "a.npy").unlink(missing_ok=True)
        return report

    with monkeypatch.context() as patched:
        patched.setattr(ingest, "read_block", reading)
        refused(1, "run", job)
    np.testing.assert_array_equal(raw(lle("run", job)), points[:N])


def test_file_replaced_during_the_read_is_detected(toy_stages, tmp_path, points, folder, during):
    job = config(tmp_path, 2)
    first = lle("run", job)
    np.save(folder / "c.npy", points[300:N] + 0.01)
    during(1, lambda: np.save(folder / "b.npy", points[:300] - 0.01))
    refused(1, "run", job)
    assert Versions(str(tmp_path / "run.zarr")).pointer().version == first["published"]
    np.testing.assert_array_equal(raw(lle("run", job)), np.concatenate([points[:300] - 0.01, points[300:N] + 0.01]))


@pytest.mark.parametrize("act", [lambda path: path.write_bytes(path.read_bytes()[:200]), Path.unlink])
def test_file_that_is_written_during_the_read_is_no_damage(toy_stages, tmp_path, points, folder, during, act):
    """Half a file looks damaged, and a file that is replaced is missing for a moment: a retry cures both."""
    job, whole = config(tmp_path, 2), (folder / "c.npy").read_bytes()
    during(0, lambda: act(folder / "c.npy"))
    assert "changed, added or removed during the run, which failed: " in refused(1, "run", job)
    (folder / "c.npy").write_bytes(whole)
    np.testing.assert_array_equal(raw(lle("run", job)), points[:N])


def test_error_beside_files_added_after_the_others_is_reported_as_it_is(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 2)))

    def fail():
        with one_state(before, partial(open_source, "npy", path=str(tmp_path / "*.npy"))):
            raise InputError("M has a null vector")

    before = open_source("npy", path=str(tmp_path / "*.npy"))
    np.save(tmp_path / "b.npy", np.ones((4, 2)))
    with pytest.raises(InputError):
        fail()
    np.save(tmp_path / "a.npy", np.zeros((5, 2)))
    with pytest.raises(InputChanged):
        fail()


def test_files_added_after_the_others_are_read_by_the_next_run(toy_stages, tmp_path, points, folder, during):
    job = config(tmp_path, 2)
    during(0, lambda: np.save(folder / "d.npy", points[N:]))
    np.testing.assert_array_equal(raw(lle("run", job)), points[:N])
    second = lle("run", job)
    assert not second["unchanged"]
    np.testing.assert_array_equal(raw(second), points)


def test_zarr_chunk_changed_during_the_read_is_detected(toy_stages, tmp_path, points, during):
    array = zarr.create_array(str(tmp_path / "in.zarr"), shape=(N, 3), chunks=(100, 3), dtype="f8")
    array[:] = points[:N]
    job = config(tmp_path, 2, kind="zarr", url=str(tmp_path / "in.zarr"))

    def append():
        array.resize((N + 100, 3))
        array[N:] = points[N:]

    during(0, append)
    np.testing.assert_array_equal(raw(lle("run", job)), points[:N])

    def change():
        array[:100] = points[:100] + 0.01
        os.utime(tmp_path / "in.zarr" / "c" / "0" / "0", ns=(1, 1))

    during(3, change)
    refused(1, "run", job)
    result = lle("run", job)
    np.testing.assert_array_equal(raw(result), np.concatenate([points[:100] + 0.01, points[100:]]))
    assert read_blocks(result["store"]) == [True, False, False, True]


def test_blocks_record_the_state_of_their_files(toy_stages, tmp_path, folder):
    store = Store(lle("run", config(tmp_path, None))["store"])
    states = [report.report["state"] for report in checkpoint.read_reports(store)["ingest.read"]]
    assert len(set(states)) == 3


def test_labels_stay_with_their_rows(toy_stages, tmp_path, points, monkeypatch):
    def put(name, rows):
        table = pd.DataFrame(rows, columns=["x", "y", "z"])
        table.assign(height=rows[:, 1]).to_parquet(tmp_path / f"{name}.parquet")

    put("b", points[:N])
    job = config(tmp_path, 2, kind="parquet", path=str(tmp_path / "*.parquet"), columns=["x", "y", "z"], label="height")
    read = ingest.read_labels

    def reading(*arguments, **parameters):
        put("a", points[N:])
        return read(*arguments, **parameters)

    with monkeypatch.context() as patched:
        patched.setattr(ingest, "read_labels", reading)
        refused(1, "run", job)
    store = Store(lle("run", job)["store"])
    np.testing.assert_array_equal(store.read_all("_work/raw")[:, 1], store.read_all("label")[:, 0])


@pytest.mark.slow
def test_new_points_changed_during_a_transform_are_detected(tmp_path, points, folder, monkeypatch):
    store, new = lle("run", config(tmp_path, None))["store"], str(folder / "*.npy")
    execution = tmp_path / "execution.yaml"
    execution.write_text(
        f"input: {{kind: npy, path: x}}\noutput: {{store: y}}\n"
        f"execution: {{block_points: {BLOCK}, cluster: {{kind: serial}}}}\n"
    )
    command = ["transform", store, new, tmp_path / "y.npy", "--config", execution]
    read = embed_new.read_new

    def reading(*arguments):
        if not (folder / "a.npy").exists():
            np.save(folder / "a.npy", points[N:])
        return read(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(embed_new, "read_new", reading)
        assert "while they were read" in refused(1, *command)
    assert not (tmp_path / "y.npy").exists()
    (folder / "a.npy").unlink()

    def cutting(*arguments):
        (folder / "c.npy").write_bytes(whole[:200])
        return read(*arguments)

    whole = (folder / "c.npy").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(embed_new, "read_new", cutting)
        assert "during the run, which failed: " in refused(1, *command)
    (folder / "c.npy").write_bytes(whole)
    assert lle(*command)["training_points"] == N
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy")[:, :2], Store(store).read_all("embedding"))


@pytest.mark.slow
def test_column_of_neighbor_numbers_stays_with_its_rows(tmp_path, points, monkeypatch):
    """The column is read after the rows, so a file added in between would shift it."""
    (tmp_path / "in").mkdir()

    def save(name, part):
        table = pd.DataFrame(part, columns=["x", "y", "z"]).assign(k=np.arange(len(part)) % 5 + 6)
        table.to_parquet(tmp_path / "in" / name)

    def late(store, block, **parameters):
        save("a.parquet", points[N:])
        monkeypatch.setattr(variable_neighborhoods, "read_k", read)
        return read(store, block, **parameters)

    save("b.parquet", points[:300])
    save("c.parquet", points[300:N])
    source = {"kind": "parquet", "path": str(tmp_path / "in" / "*.parquet"), "columns": ["x", "y", "z"]}
    sections = {**FEW, "neighbors": {"k_per_point": "k", "k_max": 10}}
    job = write_config(tmp_path, input=source, output={"report": False}, execution={"block_points": BLOCK}, **sections)
    read = variable_neighborhoods.read_k
    monkeypatch.setattr(variable_neighborhoods, "read_k", late)
    assert "k_per_point no longer matches them" in refused(1, "run", job)
    result = lle("run", job)
    np.testing.assert_array_equal(raw(result), np.concatenate([points[N:], points[:N]]))
    store = Store(result["store"])
    expected = np.concatenate([np.arange(100), np.arange(300), np.arange(300)]) % 5 + 6
    stored = store.read_all("_work/k_per_point")
    np.testing.assert_array_equal(stored, expected[store.read_all("original_index")])
