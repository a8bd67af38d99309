"""Calls in a separate process: results, errors, deaths, and the limit on its memory."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from lle.core.errors import ConfigError, NotEnoughMemory, StageIncomplete
from lle.engine import subprocess_call
from tests.support.waiting import wait_until

MIB = 2**20


def add(send_progress, a, b):
    return a + b


def say_and_end(send_progress, number):
    send_progress("one")
    send_progress("two")
    os.kill(os.getpid(), number)


def refuse(send_progress, kind):
    raise {"config": ConfigError("no such key"), "fault": KeyError("x")}[kind]


def hold(send_progress, n_bytes):
    return float(np.ones(n_bytes // 8).sum())


def sleep(send_progress):
    send_progress(str(os.getpid()))
    time.sleep(600)


@pytest.mark.slow
def test_call_returns_the_result_and_the_peak_memory():
    small, small_peak = subprocess_call.call(hold, (8,), None)
    large, large_peak = subprocess_call.call(hold, (300 * MIB,), None)
    assert (small, large) == (1, 300 * MIB // 8)
    assert large_peak - small_peak > 250 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_death_of_the_process_reports_its_last_message(number):
    with pytest.raises(subprocess_call.ProcessDied, match=number.name) as died:
        subprocess_call.call(say_and_end, (number,), None)
    assert died.value.last_message == "two"
    assert died.value.cause == ("crashed" if number == signal.SIGSEGV else "killed")
    assert subprocess_call.call(add, (1, 2), None)[0] == 3


def test_own_errors_keep_their_type_and_others_become_text():
    with pytest.raises(ConfigError, match="no such key"):
        subprocess_call.call(refuse, ("config",), None)
    with pytest.raises(subprocess_call.LleError, match="KeyError: 'x'"):
        subprocess_call.call(refuse, ("fault",), None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts data pages")
def test_memory_above_the_limit_raises():
    allowed = 400 * MIB
    assert subprocess_call.call(hold, (allowed // 2,), allowed)[0] > 0
    with pytest.raises(NotEnoughMemory, match="max_memory"):
        subprocess_call.call(hold, (2 * allowed + subprocess_call.SLACK_BYTES,), allowed)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_process_does_not_outlive_its_parent(tmp_path):
    program = tmp_path / "parent.py"
    (tmp_path / "child.py").write_text(
        "import os, time\n"
        "def say_who_and_sleep(say, path):\n    open(path, 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
    )
    program.write_text(
        "from child import say_who_and_sleep\nfrom lle.engine import subprocess_call as isolated\n"
        f"isolated.call(say_who_and_sleep, ({str(tmp_path / 'pid')!r},), None)\n"
    )
    parent = subprocess.Popen([sys.executable, str(program)])
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    parent.kill()
    parent.wait()
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_stop_all_ends_active_calls():
    results = []

    def call():
        try:
            subprocess_call.call(sleep, (), None)
        except subprocess_call.ProcessDied as error:
            results.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(psutil.Process().children)
    time.sleep(1)
    subprocess_call.stop_all()
    thread.join(30)
    assert not thread.is_alive()
    assert "SIGKILL" in str(results[0])
    assert results[0].cause == "stopped"


@pytest.mark.parametrize("n_good", [0, 2])
def test_a_failed_check_kills_the_process(monkeypatch, n_good):
    monkeypatch.setattr(subprocess_call, "CHECK_SECONDS", 0.1 if n_good else 300.0)  # the first check does not wait
    started, checks, before = time.monotonic(), [], multiprocessing.active_children()

    def check():
        checks.append(None)
        if len(checks) > n_good:
            raise StageIncomplete("a newer run has taken over the store")

    with pytest.raises(StageIncomplete, match="newer run"):
        subprocess_call.call(sleep, (), None, check)
    assert len(checks) == n_good + 1
    assert time.monotonic() - started < 250
    for process in set(multiprocessing.active_children()) - set(before):
        process.join(30)
        assert process.exitcode == -signal.SIGKILL


def test_a_killed_process_that_has_read_a_store_leaves_no_semaphore(tmp_path):
    """Python's resource tracker prints the names that are left when the last process has ended."""
    program = tmp_path / "program.py"
    (tmp_path / "child.py").write_text(
        "import os, signal\nimport numpy as np\nfrom lle.storage.array_specs import POINT_COMPONENT, PlannedArray\n"
        "from lle.storage.store import Store\n"
        "def use_store_and_die(send_progress, url):\n"
        "    store = Store(url)\n    store.create_group({})\n"
        "    store.create(PlannedArray(POINT_COMPONENT, (9,), 'int32', 9))\n"
        "    store.write(POINT_COMPONENT.name, 0, np.arange(9, dtype='int32'))\n"
        "    print(store.read_all(POINT_COMPONENT.name).sum(), flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    program.write_text(
        "import contextlib\nfrom child import use_store_and_die\nfrom lle.engine import subprocess_call\n"
        "with contextlib.suppress(subprocess_call.ProcessDied):\n"
        f"    subprocess_call.call(use_store_and_die, ({str(tmp_path / 's')!r},), None)\n"
    )
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("36\n", "")
