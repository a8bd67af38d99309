"""Faults: messages, repeated blocks, and a result with the bytes of an undisturbed run.

The faults themselves are in tests/benchmarks/faults.py, which prints them as a table.
"""

import contextlib
import errno
from collections import Counter

import pytest
from typer.testing import CliRunner

from lle.cli.commands import app
from lle.engine import checkpoint
from tests.benchmarks import faults
from tests.support.commands import lle
from tests.support.dask_processes import dask_processes, is_registered, scheduler_command, two_workers, worker_command
from tests.support.stored import RESULTS, flip
from tests.support.traffic import forwarded

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]

IN_FLIGHT = 2 * 3  # blocks that a worker may hold when it dies: Dask may start each of its queue once more


@pytest.fixture(scope="module")
def client():
    with two_workers() as client:
        yield client


@contextlib.contextmanager
def cut_off_worker(folder):
    """Address of a scheduler, a function that cuts its worker off for a second, and the log of the worker.

    The worker reaches the scheduler through a forwarder only, and is started again when it ends.
    """
    log = folder / "worker.log"
    with (
        dask_processes(folder, {"scheduler": scheduler_command(folder)}, {}, lambda: True) as address,
        forwarded(address.removeprefix("tcp://"), len, len) as (forwarder, cut),
    ):
        command = worker_command(folder, f"tcp://{forwarder}", "--death-timeout", "60")
        with dask_processes(folder, {"worker": command}, {}, lambda: is_registered(log), is_restarted=True):
            yield address, lambda: cut(1.0), log


class TestWorkers:
    def test_worker_killed_in_every_stage_changes_no_byte(self, tmp_path, client):
        rows = faults.worker_killed(tmp_path, client)
        assert [row.stage for row in rows] == list(faults.ON_WORKERS)
        assert all(row.equal and not row.message for row in rows)
        assert max(row.redone for row in rows) <= IN_FLIGHT

    def test_all_workers_killed_at_once_changes_no_byte(self, tmp_path, client):
        [row] = faults.all_workers_restarted(tmp_path, client)
        assert (row.equal, row.message) == (True, "")
        assert row.redone <= IN_FLIGHT

    def test_block_that_kills_its_worker_is_named_and_others_finish(self, tmp_path, client):
        [row] = faults.poisoned_block(tmp_path, client)
        assert row.equal
        assert "solve_weights.solve: 1 of 6 blocks failed" in row.message
        assert "block 2: StageIncomplete: its worker was killed at each try" in row.message
        assert 4 <= row.redone <= 4 * 3  # it kills four workers; each held up to two other blocks

    def test_a_cut_between_worker_and_scheduler_changes_no_byte(self, tmp_path):
        """The worker ends, as its pod would, and a new one connects when the network is back."""
        with cut_off_worker(tmp_path) as (address, cut, logs):
            job = faults.Job(tmp_path / "job", address)
            assert job.run(faults.Quiet("solve_weights", cut, "solve")) == ""
            assert logs.read_text().count("Registered to") >= 2
        assert job.results() == faults.undisturbed()

    def test_lost_scheduler_is_a_temporary_error(self, tmp_path):
        [row] = faults.scheduler_lost(tmp_path)
        assert row.equal
        assert "scheduler" in row.message
        assert "run again to resume" in row.message
        assert row.redone <= IN_FLIGHT


class TestDrivers:
    def test_killed_driver_is_resumed(self, tmp_path):
        [row] = faults.driver_killed(tmp_path)
        assert row.equal
        assert row.redone <= 1

    def test_second_driver_is_refused(self, tmp_path):
        [row] = faults.two_drivers(tmp_path)
        assert row.equal
        assert "another run holds this store" in row.message
        assert row.redone == 0

    def test_changes_of_the_clock_do_not_matter(self, tmp_path):
        [row] = faults.clock_skew(tmp_path)
        assert (row.equal, row.redone) == (True, 0)


class TestStorage:
    def test_full_disk_keeps_finished_blocks(self, tmp_path):
        try:
            [row] = faults.disk_full(tmp_path)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
            pytest.skip(str(error))
        assert row.equal
        assert row.redone == 1
        for part in ("the disk is full", "a run keeps its finished blocks", "run the same command again"):
            assert part in row.message

    def test_random_write_failures_are_retried(self, tmp_path):
        """The store retries each write; no block is computed again."""
        [row] = faults.one_write_in_twenty_fails(tmp_path)
        assert (row.equal, row.message, row.redone) == (True, "", 0)

    def test_damage_of_every_array_is_detected(self, tmp_path, monkeypatch):
        monkeypatch.setattr(checkpoint, "delete_data", lambda *arguments: None)  # as in a run that has not got so far
        rows = list(faults.damaged(tmp_path))
        check_damage(rows)
        assert len(rows) > 30
        damaged = " ".join(row.fault for row in rows)
        for name in (*RESULTS, "_work/raw", "_work/sorted_points", "_work/sent_rows", "_work/contributions"):
            assert name in damaged

    def test_verify_names_damage_and_the_next_run_repairs_it(self, tmp_path):
        job = faults.Job(tmp_path)
        job.run()
        store = tmp_path / "run.zarr"
        assert lle("verify", store)["damaged"] == 0
        for chunk in (store / "weights" / "c" / "3" / "0", store / "cost_matrix" / "00002" / "data" / "c" / "0"):
            flip(chunk)
        result = CliRunner().invoke(app, ["verify", str(store)])
        assert result.exit_code == 1
        for part in (
            "2 damaged",
            "array 'weights', chunk 3",
            "array 'cost_matrix/00002/data'",
            "block 3 of solve_weights.solve",
            "block 2 of assemble_cost.merge",
        ):
            assert part in result.output
        assert job.run() == ""
        again = Counter(key.rpartition("-")[0] for key, n in job.starts().items() if n > 1)
        freed = {
            "solve_weights.request",
            "solve_weights.send",
            "assemble_cost.contribute",
        }  # what the damaged steps read
        assert {step for step, n in again.items() if n > 1} <= freed < set(again)
        assert again["solve_weights.solve"] == again["assemble_cost.merge"] == 1
        assert set(again) - freed == {"solve_weights.solve", "assemble_cost.merge", "write_report.write"}
        assert lle("verify", store)["damaged"] == 0
        assert job.results() == faults.undisturbed()

    def test_verify_reads_the_local_factors_of_other_methods(self, tmp_path):
        store, config = tmp_path / "run.zarr", tmp_path / "job.yaml"
        config.write_text(
            "method: ltsa\ninput: {kind: synthetic, name: s_curve, n_points: 500}\n"
            f"output: {{store: {store}, report: false}}\n"
        )
        assert CliRunner().invoke(app, ["run", str(config)]).exit_code == 0
        assert lle("verify", store)["damaged"] == 0
        chunk = store / "local_factors" / "00000" / "data" / "c" / "0"
        flip(chunk)
        result = CliRunner().invoke(app, ["verify", str(store)])
        assert (result.exit_code, "array 'local_factors/00000/data'" in result.output) == (1, True)


def check_damage(rows: list[faults.Row]) -> None:
    assert [row.fault for row in rows if not row.equal or not row.redone] == []
    assert sum(bool(row.message) for row in rows) >= len(rows) // 2  # read by a step of the run, and refused
    assert all("do not match their checksum" in row.message for row in rows if row.message)
