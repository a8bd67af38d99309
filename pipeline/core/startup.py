"""Before the heavy imports: stop signals and missing resources end the process with a message."""

import json
import os
import signal
import sys
import tempfile
from types import FrameType

from .address_space import CURE, MIN_ADDRESS_SPACE, address_space_limit
from .errors import Interrupted
from .signals import STOP_SIGNALS


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


def _exit(name: str, message: str, code: int = 1) -> None:
    os.write(2, f"lle: {message}\n".encode())
    if "--json" in sys.argv:
        record = {"status": "failed", "error": name, "message": message, "exit_code": code}
        os.write(1, f"{json.dumps(record)}\n".encode())
    os._exit(code)
