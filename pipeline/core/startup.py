"""Before the heavy imports: stop signals and missing resources end the process with a message; guarded streams."""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from .address_space import CURE, MIN_ADDRESS_SPACE, address_space_limit
from .errors import Interrupted, OutputLost
from .signals import STOP_SIGNALS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def exit_without_resources() -> None:
    """End the process with exit code 1 if its address space is too small or no temporary folder can be written.

    Called before heavy imports, which fail in many ways then; some end the process without a message.
    """
    limit = address_space_limit()
    if limit is not None and limit < MIN_ADDRESS_SPACE:
        _exit(
            "NotEnoughMemory",
            f"expected at least {MIN_ADDRESS_SPACE / 2**20:.0f} MiB of address space, found {limit / 2**20:.0f} MiB "
            f"(ulimit -v). {CURE}",
        )
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        _exit(
            "TemporaryFolderMissing",
            f"expected a folder for temporary files, and none can be written: {error.strerror}. Set TMPDIR to a "
            f"writable folder; in a container, mount a volume at /tmp (Kubernetes: emptyDir, Docker: --tmpfs /tmp)",
        )


def exit_on_signals() -> None:
    """SIGINT and SIGTERM end the process at once, with exit code 128 + number.

    Called before the heavy imports: a container's process 1 ignores SIGTERM until it has a handler, and an exception
    raised during an import can be swallowed there. Nothing is locked or written yet.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        _exit(Interrupted.__name__, str(Interrupted(number)), 128 + number)

    for number in STOP_SIGNALS:
        signal.signal(number, stop)


def guard_streams() -> None:
    """Stdout that cannot be written raises OutputLost once; stderr that cannot be written loses its text.

    Progress and warnings go to stderr, and a computation does not end because its log has no room.
    """
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        if stream is None:  # the process started without it: no other file may get its number
            os.dup2(os.open(os.devnull, os.O_RDONLY), descriptor)
    sys.stdout, sys.stderr = _text_stream(1, sys.stdout), _text_stream(2, sys.stderr)


class _GuardedFile(io.FileIO):
    _result_is_lost = False

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            if not self._result_is_lost:
                return super().write(data)
        except OSError as error:
            if self.fileno() == 1:
                self._result_is_lost = True
                raise OutputLost(f"the result cannot be written to stdout: {error.strerror}") from None
        return memoryview(data).nbytes


def _text_stream(descriptor: int, replaced: TextIO | None) -> TextIO:
    """A text stream with the settings of the replaced one, which is None if the process started without it."""
    encoding, errors = (replaced.encoding, replaced.errors) if replaced else ("utf-8", "backslashreplace")
    line_buffering = descriptor == 2 or (replaced is not None and replaced.isatty())
    file = io.BufferedWriter(_GuardedFile(descriptor, "w", closefd=False))
    return io.TextIOWrapper(file, encoding, errors, line_buffering=line_buffering)


def _exit(name: str, message: str, code: int = 1) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"lle: {message}\n".encode())
    if "--json" in sys.argv:
        record = {"status": "failed", "error": name, "message": message, "exit_code": code}
        with contextlib.suppress(OSError):
            os.write(1, f"{json.dumps(record)}\n".encode())
    os._exit(code)
