"""Checks before the imports: a process without enough address space or a temporary folder ends and names the cure."""

import json
import os
import sys
import tempfile

from .address_space import CURE, MIN_ADDRESS_SPACE, address_space_limit


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


def _exit(name: str, message: str) -> None:
    os.write(2, f"lle: {message}\n".encode())
    if "--json" in sys.argv:
        record = {"status": "failed", "error": name, "message": message, "exit_code": 1}
        os.write(1, f"{json.dumps(record)}\n".encode())
    os._exit(1)
