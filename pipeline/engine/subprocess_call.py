"""Call a function in a process of its own, under a limit on its memory: what dies there does not take the job along.

A factorization that outgrows its limit gets an error from malloc, or is killed by the system; either way the caller is
still there, knows how far the call had come, and can go on with something else.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..core.errors import LleError, NotEnoughMemory

Say = Callable[[str], None]

SLACK_BYTES = 512 * 2**20
"""Stacks of threads and libraries loaded during the call."""

_running: set[Any] = set()


class ProcessDied(LleError):
    """The process ended without an answer."""

    def __init__(self, said: str, how: str) -> None:
        super().__init__(f"a process of the eigensolver ended {how}" + (f" in {said}" if said else ""))
        self.said, self.how = said, how


def call(function: Callable[..., Any], arguments: tuple[Any, ...], max_bytes: int | None) -> tuple[Any, int]:
    """``function(say, *arguments)`` in a fresh process; its result and the peak of its memory in bytes.

    Args:
        function: importable by name; ``say(text)`` tells the caller how far it is.
        arguments: what it gets, to be pickled.
        max_bytes: memory it may add to what a process of this program has at its start; None for no limit.

    A daemonic process makes the call itself, without a limit.

    Raises:
        ProcessDied: the process was killed or crashed; ``said`` is the last text it said.
        NotEnoughMemory: for a MemoryError in the process; any other error of the function as it is.
    """
    if multiprocessing.current_process().daemon:  # such a process (a Dask worker under a nanny) may not start others
        return function(lambda text: None, *arguments), peak_bytes()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, function, arguments, max_bytes), daemon=True)
    process.start()
    _running.add(process)
    theirs.close()
    said, answer = "", None
    try:
        with contextlib.suppress(EOFError, ConnectionResetError):
            while answer is None:
                kind, value = ours.recv()
                if kind == "said":
                    said = value
                else:
                    answer = kind, value
        process.join()
    finally:
        _running.discard(process)
        ours.close()
    if answer is None:
        raise ProcessDied(said, _how(process.exitcode))
    if answer[0] == "error":
        raise answer[1]
    result: tuple[Any, int] = answer[1]
    return result


def stop_all() -> None:
    """Kill the processes of all calls that are going on, as their results are no longer wanted."""
    for process in list(_running):
        process.kill()


def peak_bytes() -> int:
    """The most memory this process has held, or 0 where the system does not say."""
    return _status_bytes("VmHWM")


def _serve(
    connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...], max_bytes: int | None
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if max_bytes is not None:
        _limit(max_bytes)
    try:
        result = function(lambda text: connection.send(("said", text)), *arguments)
        connection.send(("result", (result, peak_bytes())))
    except MemoryError as error:
        connection.send(("error", NotEnoughMemory(f"out of memory ({error}); raise eigensolver.max_memory")))
    except BaseException as error:
        connection.send(("error", error if _travels(error) else LleError(f"{type(error).__name__}: {error}")))


def _travels(error: BaseException) -> bool:
    """Whether the error can be sent as it is; others arrive as text."""
    return isinstance(error, LleError | ArithmeticError | ValueError | OSError)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _limit(max_bytes: int) -> None:
    """Let malloc fail beyond the limit; systems that cannot count data pages have no limit."""
    held = _status_bytes("VmData")
    if held:
        resource: Any = importlib.import_module("resource")  # no such thing on Windows, which shows no VmData either
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = held + max_bytes + SLACK_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


def _status_bytes(key: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"by {signal.Signals(-exit_code).name}"
    return f"with code {exit_code}"
