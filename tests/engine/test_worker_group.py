"""Ranks on local workers: what arrives, in which order, and how a group ends after errors, deaths and interruptions."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster

from lle.clusters.connect import connect
from lle.config.models import Cluster
from lle.core.errors import GroupLost, InputError, Interrupted, LleError
from lle.core.group import Group, OneProcess
from lle.core.signals import interruptible
from lle.engine import worker_group
from lle.engine.worker_group import run_in_group
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

DTYPES = ("float32", "float64", "int32", "int64")
SHAPES = ((), (5,), (3, 4), (2, 3, 2), (0,), (0, 3), (3, 0))
N_RANKS = 3
SOON = 10.0
"""Seconds in which a group ends. It takes less than one on an idle machine."""


@pytest.fixture(scope="module")
def client():
    with connect(Cluster(kind="local", workers=N_RANKS, memory="2GiB")) as client:
        yield client


def mailboxes(client: Client) -> list[str]:
    """Names that groups have left on workers."""

    def names(dask_worker) -> list[str]:
        return [name for name in (*dask_worker.extensions, *dask_worker.handlers) if "lle-group" in name]

    return [name for found in client.run(names).values() for name in found]


def wait_until_empty(client: Client) -> None:
    """Until no rank of any group runs."""
    wait_until(lambda: not mailboxes(client))


def part(sender: int, receiver: int, dtype: str, shape: tuple[int, ...], order: str) -> np.ndarray:
    """The array that `sender` sends to `receiver`; "slice": in neither order."""
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) + 100 * sender + 10 * receiver
    values = np.asarray(values, dtype, order="F" if order == "F" else "C")
    return np.repeat(values, 2, axis=-1)[..., ::2] if order == "slice" and shape else values


def exchange_all(group: Group) -> int:
    """Every array arrives with its dtype, shape and values; returns the number of calls."""
    others = [rank for rank in range(group.size) if rank != group.rank]
    cases = [(dtype, shape, order) for dtype in DTYPES for shape in SHAPES for order in ("C", "F", "slice")]
    for case in cases:
        received = group.exchange({rank: part(group.rank, rank, *case) for rank in others}, others)
        assert list(received) == others
        gathered = group.gather(part(group.rank, 7, *case))
        assert len(gathered) == group.size
        pairs = [(received[rank], part(rank, group.rank, *case)) for rank in others]
        for actual, expected in pairs + [(gathered[rank], part(rank, 7, *case)) for rank in others]:
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
            assert actual.flags.c_contiguous
            np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(gathered[group.rank], part(group.rank, 7, *case))
    return len(cases)


def test_program_for_a_group_runs_in_one_process():
    assert exchange_all(OneProcess()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [1, 2, 3])
def test_arrays_arrive_as_they_were_sent(client, n_ranks):
    assert run_in_group(client, exchange_all, n_ranks=n_ranks) > 0
    assert mailboxes(client) == []


def gather_and_overwrite(group: Group) -> np.ndarray:
    """(size, 4) what was gathered, after each rank has overwritten its own array."""
    own = np.full(4, float(group.rank))
    gathered = group.gather(own)
    own[:] = -1
    group.gather(np.zeros(1))
    return np.stack(gathered)


@pytest.mark.slow
def test_gathered_arrays_stay_if_their_senders_overwrite_them():
    """Workers of one process send no copies."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        gathered = run_in_group(client, gather_and_overwrite)
    np.testing.assert_array_equal(gathered, np.repeat([[-1.0], [1.0], [2.0]], 4, axis=1))


def pids(group: Group) -> list[int]:
    return [int(pid) for pid in group.gather(np.array(os.getpid()))]


@pytest.mark.slow
def test_each_rank_has_a_worker_of_its_own_and_more_ranks_than_workers_are_not_begun(client):
    there = client.run(os.getpid)
    assert run_in_group(client, pids, n_ranks=100) == [there[address] for address in sorted(there)]
    assert run_in_group(client, pids) == run_in_group(client, pids)


CALLS = 12


def run_ahead(group: Group) -> tuple[list[list[int]], list[np.ndarray]]:
    """In each call rank 1 sends the number of the call to the slow rank 0, and rank 2 in every third call.

    Rank 0 returns what it received in each call, and the times at which each rank began and ended its calls.
    """
    received, times = [], np.empty((CALLS, 2))
    for call in range(CALLS):
        senders = [1, 2] if call % 3 == 2 else [1]
        if group.rank == 0:
            time.sleep(0.03)
        times[call, 0] = time.monotonic()
        sent = {0: np.array(call)} if group.rank in senders else {}
        arrived = group.exchange(sent, senders if group.rank == 0 else [])
        times[call, 1] = time.monotonic()
        received.append([int(value) for value in arrived.values()])
    return received, group.gather(times)


@pytest.mark.slow
def test_messages_of_a_faster_rank_stay_in_order_and_wait_at_the_sender(client):
    received, (slow, sending, rarely) = run_in_group(client, run_ahead)
    assert received == [[call, call] if call % 3 == 2 else [call] for call in range(CALLS)]
    assert rarely[1, 1] < slow[1, 0]  # rank 2 was ahead by calls without messages
    assert (sending[:, 1] > slow[:, 0]).all()  # a part is sent when its receiver has come to that call
    assert (rarely[2::3, 1] > slow[2::3, 0]).all()


def exchange_large(group: Group, n_values: int) -> tuple[float, float]:
    """The sum of a large array from the other rank, and the memory that remains after it was deleted."""
    other, values = 1 - group.rank, np.full(n_values, group.rank + 1.0)
    group.gather(np.zeros(1))
    before = psutil.Process().memory_info().rss
    received = group.exchange({other: values}, [other])[other]
    received += 0.5
    total = float(received.sum())
    del received
    group.gather(np.zeros(1))
    return total, psutil.Process().memory_info().rss - before


@pytest.mark.slow
def test_large_array_is_sent_in_pieces_and_freed(client):
    """Dask divides messages of more than 64 MiB."""
    n_values = 10 * 2**20
    total, left = run_in_group(client, exchange_large, (n_values,), 2)
    assert total == 2.5 * n_values
    assert left < 8 * n_values / 2


def fail(group: Group, seconds: dict[int, float], error: Exception) -> None:
    """The ranks in `seconds` raise an error after that time, while the others wait for each other."""
    if group.rank in seconds:
        time.sleep(seconds[group.rank])
        error.args = (f"rank {group.rank}",)
        raise error
    while True:
        group.gather(np.zeros(3))


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [{0: 0.3}, {1: 0.0}, {1: 0.6, 2: 0.0}])
def test_error_of_the_lowest_rank_ends_all_and_arrives_as_it_is(client, seconds):
    started = time.monotonic()
    with pytest.raises(InputError) as caught:
        run_in_group(client, fail, (seconds, InputError("x", advice="do this", exit_code=7)))
    assert time.monotonic() - started < SOON
    assert type(caught.value) is InputError
    assert str(caught.value) == f"rank {min(seconds)}; do this"
    assert caught.value.exit_code == 7
    wait_until_empty(client)


def send_too_much(group: Group) -> None:
    group.exchange({0: np.zeros(1)} if group.rank == 1 else {}, [2] if group.rank == 0 else [])


@pytest.mark.slow
def test_array_that_no_rank_expects_is_an_error(client):
    """The rank that waits for an array which nobody sends ends too."""
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 0 expects no array from rank 1 in call 1"):
        run_in_group(client, send_too_much)
    assert time.monotonic() - started < SOON
    wait_until_empty(client)


def die(group: Group, folder: Path, deaths: int) -> int:
    """The last rank kills its worker at its first `deaths` tries; returns the size of the group that survives."""
    group.gather(np.zeros(1))
    if group.rank == group.size - 1:
        before = len(list(folder.iterdir()))
        (folder / f"{before}").write_text("")
        if before < deaths:
            os._exit(1)
    return len(group.gather(np.zeros(1)))


def test_workers_are_found_if_an_update_of_the_client_has_none(client, monkeypatch):
    async def without_workers(n_workers=0):
        client._scheduler_identity = {"workers": {}}

    monkeypatch.setattr(client, "_update_scheduler_info", without_workers)
    assert len(worker_group._workers(client)) == N_RANKS


@pytest.mark.parametrize("n_failures", [1, 2])
def test_failed_list_of_workers_is_requested_again(n_failures):
    """A failed request must not look as if all workers had died."""
    failures = iter([OSError("cut")] * n_failures)

    async def identity(n_workers):
        assert n_workers == -1
        for failure in failures:
            raise failure
        return {"workers": {"tcp://a:1": {}}}

    def sync(request, *arguments, **options):
        return asyncio.run(request(*arguments, **options))

    client = SimpleNamespace(sync=sync, scheduler=SimpleNamespace(identity=identity))
    if n_failures == 1:
        assert worker_group._workers(client) == ["tcp://a:1"]
    else:
        with pytest.raises(LleError, match=r"the Dask scheduler was lost \(cut\); run again to resume"):
            worker_group._workers(client)


@pytest.mark.parametrize("n_known", [1, 2, 3])
def test_the_error_that_ended_the_group_is_reported(monkeypatch, n_known):
    """Not its consequences in ranks before it."""
    errors = [worker_group._GroupEnded("ended"), GroupLost("worker a has died"), InputError("NaN")][:n_known]
    monkeypatch.setattr(worker_group, "_outcomes", lambda *arguments: [None, *errors])
    monkeypatch.setattr(worker_group, "required_versions", lambda client: None)
    client = SimpleNamespace(run=lambda *arguments, **options: {})
    with pytest.raises(type(errors[-1]), match=str(errors[-1])):
        worker_group._run_once(client, die, (), [])


@pytest.mark.slow
def test_group_begins_again_when_the_killed_worker_is_back(client, tmp_path, capsys):
    assert run_in_group(client, die, (tmp_path, 1)) == N_RANKS
    assert "lle: warning: worker tcp://" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 2
    wait_until_empty(client)


@pytest.mark.slow
def test_group_that_loses_workers_without_progress_is_given_up(client, tmp_path, monkeypatch):
    """The tries count from the last progress, here the second try, and go on with the workers that are left."""
    monkeypatch.setattr(worker_group, "RESTART_SECONDS", 0.0)
    with pytest.raises(GroupLost, match=r"worker .* (ended while|does not answer).* It is try 3"):
        run_in_group(client, die, (tmp_path, 99), progress=lambda: min(2, len(list(tmp_path.iterdir()))))
    assert len(list(tmp_path.iterdir())) == 1 + worker_group.TRIES
    wait_until_empty(client)
    client.wait_for_workers(N_RANKS)


def gather_forever(group: Group, started: Path) -> None:
    while True:
        started.touch()
        group.gather(np.zeros(3))


def when_begun(started: Path, action) -> threading.Thread:
    """Calls `action` in a thread as soon as ranks compute."""

    def wait() -> None:
        while not started.exists():
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.parametrize("busy_seconds", [0.0, 1.5])
def test_interrupted_driver_ends_the_ranks(client, tmp_path, busy_seconds):
    """With a busy worker, one rank has not begun, while others have already sent it their arrays."""
    busy = client.submit(time.sleep, busy_seconds, workers=[min(client.run(os.getpid))], pure=False)
    thread = when_begun(tmp_path / "started", lambda: os.kill(os.getpid(), signal.SIGINT))
    with interruptible(), pytest.raises(Interrupted):
        run_in_group(client, gather_forever, (tmp_path / "started",))
    thread.join()
    wait_until_empty(client)
    busy.result()


@pytest.mark.slow
def test_ranks_end_when_their_driver_is_gone(client, tmp_path):
    """The scheduler releases the tasks of a lost client, but cannot stop one that is running."""
    errors = []

    def drive() -> None:
        try:
            run_in_group(other, gather_forever, (tmp_path / "started",))
        except Exception as error:
            errors.append(error)

    with Client(client.scheduler.address, set_as_default=False) as other:
        driver = threading.Thread(target=drive)
        driver.start()
        when_begun(tmp_path / "started", other.close).join()
        driver.join()
    assert len(errors) == 1
    wait_until_empty(client)
