"""One driver at a time holds a store."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from lle.core import machine
from lle.core.errors import StoreError, StoreHeld
from lle.storage import lock
from lle.storage.lock import LOCK, STALE_SECONDS, RunLock, running, wait_for_lock
from lle.storage.store import Store
from tests.support.waiting import wait_until


def holder(**changes) -> bytes:
    """The content of a lock that this living process would hold."""
    me = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "token": "t",
        "alive": time.time(),
        "started": psutil.Process().create_time(),
    }
    return json.dumps({**me, **changes}).encode()


def written_before(store: Store, seconds: float) -> None:
    """Make the lock as old as that, by the clock of the file system."""
    path = Path(store.url, LOCK)
    os.utime(path, (path.stat().st_mtime - seconds,) * 2)


def move_to(monkeypatch, numbers: int) -> None:
    """Pretend that this process is in a container that counts its own."""
    for module in (lock, machine):
        monkeypatch.setattr(module, "process_location", lambda: (socket.gethostname(), numbers))


class TestRunLock:
    def test_a_second_run_is_refused(self, store):
        with RunLock(store), pytest.raises(StoreError) as caught, RunLock(Store(store.url)):
            pass
        for part in (store.url, str(os.getpid()), socket.gethostname(), "another run holds this store"):
            assert part in str(caught.value)

    def test_lock_is_released_at_the_end_and_after_errors(self, store):
        with RunLock(store):
            assert running(store)
        assert not store.objects.exists(LOCK)
        with pytest.raises(ZeroDivisionError), RunLock(store):
            1 / 0  # noqa: B018
        assert not running(store)
        with RunLock(Store(store.url)):
            assert running(store)

    def test_lock_of_a_dead_process_is_taken_over(self, store):
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        store.objects.create(LOCK, holder(pid=dead.pid))
        assert not running(store)
        with RunLock(store):
            assert store.get_json(LOCK)["pid"] == os.getpid()
        assert not store.objects.exists(LOCK)

    def test_lock_of_a_reused_process_id_is_taken_over(self, store):
        store.objects.create(LOCK, holder(started=psutil.Process().create_time() - 3600))
        with RunLock(store):
            assert store.get_json(LOCK)["token"] != "t"

    def test_lock_of_a_later_version_is_kept(self, store):
        store.objects.create(LOCK, holder(a_later_field=[1, 2]))
        assert running(store)
        with pytest.raises(StoreError, match="another run holds this store"), RunLock(store):
            pass

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="zombies are of POSIX")
    def test_lock_of_a_zombie_is_taken_over(self, store):
        child = subprocess.Popen([sys.executable, "-c", ""])
        process = psutil.Process(child.pid)
        started = process.create_time()
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
        store.objects.create(LOCK, holder(pid=child.pid, started=started))
        try:
            assert not running(store)
        finally:
            child.wait()

    @pytest.mark.parametrize(("silent", "alive"), [(0, True), (STALE_SECONDS - 60, True), (STALE_SECONDS + 60, False)])
    def test_lock_of_another_host_is_judged_by_its_last_update(self, store, silent, alive):
        # A process number on this host, living or dead, does not show whether the other host's process lives.
        for pid in (os.getpid(), 2**22 - 1):
            store.objects.put(LOCK, holder(host="elsewhere", pid=pid, alive=time.time() - silent))
            written_before(store, silent)
            assert running(store) == alive
        if alive:
            with pytest.raises(StoreError, match="on elsewhere"), RunLock(store):
                pass
        else:
            with RunLock(store):
                assert running(store)

    def test_lock_of_a_container_with_the_same_host_name_is_judged_by_its_last_update(self, store, monkeypatch):
        """Process ids of containers are separate, so an id that is free here may be in use there."""
        move_to(monkeypatch, 1)
        with RunLock(store):
            theirs = store.get_json(LOCK)
        store.objects.put(LOCK, json.dumps({**theirs, "pid": 2**22 - 1}).encode())
        assert not running(store)
        move_to(monkeypatch, 2)
        assert running(store)
        with pytest.raises(StoreError, match=f"on {socket.gethostname()}\\)"), RunLock(store):
            pass
        written_before(store, STALE_SECONDS + 60)
        with RunLock(store):
            assert store.get_json(LOCK)["numbers"] == 2

    @pytest.mark.parametrize(
        ("holder_job", "own_job", "taken_over"),
        [("1-2", "1-2", True), ("1-2", "3-4", False), (None, "1-2", False), ("1-2", None, False), ("", "", False)],
    )
    def test_lock_of_an_earlier_pod_of_the_same_job_is_taken_over_at_once(
        self, store, monkeypatch, holder_job, own_job, taken_over
    ):
        store.objects.create(LOCK, holder(host="lle-29041235-x7k2p", job=holder_job))
        if own_job is not None:
            monkeypatch.setenv("LLE_JOB_UID", own_job)
        assert running(store) is not taken_over
        refused = pytest.raises(StoreError, match="on lle-29041235-x7k2p")
        with contextlib.nullcontext() if taken_over else refused, RunLock(store):
            assert store.get_json(LOCK)["job"] == own_job

    def test_lock_of_a_living_process_of_the_same_pod_is_kept(self, store, monkeypatch):
        """`kubectl exec` in the driver's pod has the Job's variables too."""
        monkeypatch.setenv("LLE_JOB_UID", "1-2")
        with RunLock(store), pytest.raises(StoreError, match="another run"), RunLock(Store(store.url)):
            pass

    def test_lock_of_an_older_version_is_judged_by_the_process_id(self, store):
        assert "numbers" not in json.loads(holder())
        for pid, alive in ((os.getpid(), True), (2**22 - 1, False)):
            store.objects.put(LOCK, holder(pid=pid))
            assert running(store) == alive

    @pytest.mark.parametrize("skew", [-86_400, 86_400])
    def test_lock_of_a_host_with_a_wrong_clock(self, store, skew):
        """The time of the last write by the file system counts."""
        store.objects.put(LOCK, holder(host="elsewhere", alive=time.time() + skew))
        with pytest.raises(StoreError, match="on elsewhere"), RunLock(store):
            pass
        written_before(store, STALE_SECONDS + 60)
        with RunLock(store):
            assert store.get_json(LOCK)["pid"] == os.getpid()
        assert store.objects.names("_run") == []

    def test_incomplete_lock_is_taken_over(self, store):
        store.objects.create(LOCK, b'{"host": ')
        with RunLock(store):
            assert store.get_json(LOCK)["pid"] == os.getpid()

    def test_lock_is_updated_while_held(self, store, monkeypatch):
        monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.02)
        with RunLock(store):
            first = store.get_json(LOCK)["alive"]
            wait_until(lambda: store.get_json(LOCK)["alive"] > first)

    def test_lock_of_another_run_is_not_removed(self, store):
        with RunLock(store):
            store.objects.put(LOCK, holder(token="other"))
        assert store.get_json(LOCK)["token"] == "other"

    def test_one_of_several_simultaneous_runs_gets_the_lock(self, store):
        barrier, entered, refused = threading.Barrier(6), [], []
        ended = threading.Event()

        def start():
            lock = RunLock(Store(store.url))
            barrier.wait()
            try:
                with lock:
                    entered.append(lock)
                    ended.wait(30)
            except StoreError:
                refused.append(lock)
                if len(refused) == 5:
                    ended.set()

        threads = [threading.Thread(target=start) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(entered), len(refused)) == (1, 5)

    def test_late_update_does_not_take_the_lock_back(self, store, monkeypatch):
        monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.02)
        with RunLock(store):
            store.objects.put(LOCK, holder(token="other", host="elsewhere"))
            time.sleep(0.3)
            assert store.get_json(LOCK)["token"] == "other"

    def test_two_runs_that_find_a_dead_lock_do_not_both_get_it(self, store, monkeypatch):
        store.objects.create(LOCK, holder(pid=2**22 - 1))
        quick, slow = RunLock(Store(store.url)), RunLock(store)
        delete = store.objects.delete

        def overtaken(name):
            monkeypatch.setattr(store.objects, "delete", delete)
            quick.__enter__()
            delete(name)

        monkeypatch.setattr(store.objects, "delete", overtaken)
        try:
            with pytest.raises(StoreError, match="another run"):
                slow.__enter__()
        finally:
            slow.__exit__()
            quick.__exit__()

    def test_lock_released_and_taken_meanwhile_is_not_removed(self, store, monkeypatch):
        first, second, third = RunLock(Store(store.url)), RunLock(Store(store.url)), RunLock(store)
        first.__enter__()
        get_json, looks = store.get_json, []

        def look(name):
            looks.append(name)
            if len(looks) == 1:
                first.__exit__()
                actual = get_json(name)
                second.__enter__()
                return actual
            return get_json(name)

        monkeypatch.setattr(store, "get_json", look)
        try:
            with pytest.raises(StoreError, match="another run"):
                third.__enter__()
        finally:
            third.__exit__()
            second.__exit__()


class TestWait:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch):
        monkeypatch.setattr(lock, "POLL_SECONDS", 0.02)

    def attempts(self, store) -> tuple[list[str], list[str]]:
        """The log lines of `wait_for_lock`, and the states of the holder's output that the calls saw."""
        messages, outputs = [], []

        def act() -> str:
            outputs.append(store.get_json("output.json"))
            with RunLock(Store(store.url)):
                return "done"

        assert wait_for_lock(act, 60, messages.append) == "done"
        return messages, outputs

    def test_waiting_run_starts_when_the_holder_ends(self, store):
        first = RunLock(store)
        first.__enter__()

        def finish() -> None:
            store.put_json("output.json", {"is": "written"})
            first.__exit__()

        timer = threading.Timer(0.3, finish)
        timer.start()
        messages, outputs = self.attempts(store)
        timer.join()
        assert len(messages) == 1
        assert f"process {os.getpid()}" in messages[0]
        assert "at most 60 s" in messages[0]
        assert outputs == [None, {"is": "written"}]

    def test_waiting_run_starts_when_the_holder_dies(self, store):
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        started = psutil.Process(sleeper.pid).create_time()
        store.objects.create(LOCK, holder(pid=sleeper.pid, started=started))
        timer = threading.Timer(0.3, sleeper.kill)
        timer.start()
        _, outputs = self.attempts(store)
        sleeper.wait()
        assert len(outputs) == 2

    @pytest.mark.parametrize(
        ("seconds", "refusal", "n_messages"),
        [(1, "process PID on .*Waited 1 s", 1), (0, "another run holds this store", 0)],
    )
    def test_run_is_refused_after_the_wait_limit(self, store, seconds, refusal, n_messages):
        def act() -> None:
            with RunLock(Store(store.url)):
                pass

        messages = []
        with RunLock(store), pytest.raises(StoreHeld, match=refusal.replace("PID", str(os.getpid()))) as caught:
            wait_for_lock(act, seconds, messages.append)
        assert (caught.value.exit_code, len(messages)) == (1, n_messages)
