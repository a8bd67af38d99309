"""Call a function in a separate process with a memory limit, so that the job survives if the process dies.

If a factorization needs more memory, malloc fails or the system kills the process. In both cases the caller continues,
and receives the last message of the function.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from ..core.errors import LleError, NotEnoughMemory
from ..core.machine import peak_bytes, status_bytes
from ..core.main_script import hidden_main_script

SendProgress = Callable[[str], None]
T = TypeVar("T")

SLACK_BYTES = 512 * 2**20
"""Allowance for stacks of threads and for libraries that are loaded during the call."""

CHECK_SECONDS = 5.0

STOP_SIGNALS = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
"""Exit codes of a process that another one ended."""
VMSTAT = Path("/proc/vmstat")

_running: set[BaseProcess] = set()


class ProcessDied(LleError):
    """The process ended without a result.

    `last_message` is the last one of the function, `ending` the exit status in words. `cause` is stopped (by
    `stop_all`), killed (by another program, while the system killed none for lack of memory) or crashed.
    """

    def __init__(self, last_message: str, ending: str, cause: str) -> None:
        where = f" in {last_message}" if last_message else ""
        super().__init__(f"a process of the eigensolver ended {ending}{where}")
        self.last_message, self.ending, self.cause = last_message, ending, cause


def call(
    function: Callable[..., T],
    arguments: tuple[object, ...],
    max_bytes: int | None,
    check: Callable[[], None] = lambda: None,
) -> tuple[T, int]:
    """Call ``function(send_progress, *arguments)`` in a new process: (its result, peak memory of the process in bytes).

    A daemonic process makes the call itself, without a limit and without checks.

    Args:
        function: importable by name; ``send_progress(text)`` sends a progress message to the caller.
        arguments: further arguments, which are pickled.
        max_bytes: memory that the process may allocate in addition to that at its start; None for no limit.
        check: called after the start and every CHECK_SECONDS; if it raises an exception, the process is killed.

    Raises:
        ProcessDied: the process was killed or crashed.
        NotEnoughMemory: the function raised MemoryError. Other errors of the function are raised unchanged.
    """
    if multiprocessing.current_process().daemon:  # such a process (a Dask worker under a nanny) may not start others
        return function(lambda text: None, *arguments), peak_bytes()
    context = multiprocessing.get_context("spawn")
    connection, child_connection = context.Pipe()
    killed_before = killed_for_memory()
    process = context.Process(target=_serve, args=(child_connection, function, arguments, max_bytes), daemon=True)
    with hidden_main_script():
        process.start()
    _running.add(process)
    child_connection.close()
    last_message, answer = "", None
    try:
        with contextlib.suppress(EOFError, ConnectionResetError):
            while (message := _next_message(connection, check))[0] == "progress":
                last_message = message[1]
            answer = message
        process.join()
    finally:
        is_stopped = process not in _running
        _running.discard(process)
        process.kill()  # after an exception nobody waits for its answer
        connection.close()
    if answer is None:
        is_killed = process.exitcode in STOP_SIGNALS and killed_for_memory() == killed_before
        cause = "stopped" if is_stopped else "killed" if is_killed else "crashed"
        code = process.exitcode or 0
        ending = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        raise ProcessDied(last_message, ending, cause)
    if answer[0] == "error":
        raise answer[1]
    result: tuple[T, int] = answer[1]
    return result


def _next_message(connection: Connection, check: Callable[[], None]) -> tuple[str, Any]:
    check()  # `stop_all` may have come before the process was among the running ones
    while not connection.poll(CHECK_SECONDS):
        check()
    message: tuple[str, Any] = connection.recv()
    return message


def stop_all() -> None:
    """Kill the processes of all active calls, because their results are no longer needed."""
    while _running:
        _running.pop().kill()


def killed_for_memory() -> int:
    """How many processes Linux has killed for lack of memory since its start; 0 on other systems."""
    with contextlib.suppress(OSError):
        counts = dict(line.split() for line in VMSTAT.read_text().splitlines())
        return int(counts.get("oom_kill", 0))
    return 0


def _serve(
    connection: Connection, function: Callable[..., object], arguments: tuple[object, ...], max_bytes: int | None
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if max_bytes is not None:
        _limit(max_bytes)
    try:
        result = function(lambda text: connection.send(("progress", text)), *arguments)
        connection.send(("result", (result, peak_bytes())))
    except MemoryError as error:
        connection.send(("error", NotEnoughMemory(f"out of memory ({error}); raise eigensolver.max_memory")))
    except BaseException as error:
        is_sent_whole = isinstance(error, LleError | ArithmeticError | ValueError | OSError)  # others may not pickle
        connection.send(("error", error if is_sent_whole else LleError(f"{type(error).__name__}: {error}")))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _limit(max_bytes: int) -> None:
    """Make malloc fail beyond the limit. There is no limit on systems that do not count data pages."""
    current_bytes = status_bytes("VmData")
    if current_bytes:
        resource: Any = importlib.import_module("resource")  # missing on Windows, where VmData is not reported either
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = current_bytes + max_bytes + SLACK_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
