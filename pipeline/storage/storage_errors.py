"""Errors of the operating system and of object stores, as StoreErrors that name the cure."""

import contextlib
import errno
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..core.credentials import redact
from ..core.errors import StoreError

FULL = {errno.ENOSPC, errno.EDQUOT}
NO_IDENTITY = re.compile(r"//(169\.254\.\d+\.\d+|metadata\.google\.internal)\b")  # identity services of the clouds
DENIED = re.compile(r"status code: 40[13] ")  # obstore has no error class for a refused listing
UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
WRITE_PAUSES = (0.02, 0.1, 0.5, 2.0)  # seconds between attempts


@contextlib.contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn errors of the operating system or the object store into a StoreError that names the cure."""
    try:
        yield
    except Exception as error:
        if explanation := explain_remote(error):
            exit_code = 2 if explanation.is_final else None
            raise StoreError(f"{where}: {explanation.words}", exit_code=exit_code) from None
        if not isinstance(error, OSError):
            raise
        raise _explain(error, where) from None


def persist(write: Callable[[], object], where: str) -> None:
    """Run a write; repeat it after a pause if the error may be temporary. Raises StoreError."""
    with storage_errors(where):
        for pause in WRITE_PAUSES:
            try:
                write()
                return
            except Exception as error:
                if not _is_passing(error):
                    raise
            time.sleep(pause)
        write()


def _is_passing(error: BaseException) -> bool:
    """Whether a write may succeed a moment later. Requests to object stores are repeated in retries.py."""
    return isinstance(error, OSError) and error.errno not in FULL | UNUSABLE and not _is_remote(error)


def _explain(error: OSError, where: str) -> StoreError:
    if error.errno in FULL:
        return StoreError(
            f"{where}: the disk is full ({error.strerror}). Free space and run the same command again: a run keeps its "
            f"finished blocks, and `lle plan` shows how much it needs"
        )
    if error.errno in UNUSABLE:
        cure = "Correct the path or its permissions, or choose another place"
        return StoreError(f"{where}: the path cannot be used: {error.strerror}. {cure}", exit_code=2)
    return StoreError(
        f"{where}: cannot be read or written ({type(error).__name__}: {error}). Check the path and the disk, and run "
        f"the same command again"
    )


def _is_remote(error: BaseException) -> bool:
    """Whether obstore raised the error; some of obstore's errors are Python's own classes."""
    no_errno = isinstance(error, OSError) and error.errno is None
    return type(error).__module__.startswith("obstore") or (no_errno and "Debug source" in str(error))


class Explanation(NamedTuple):
    """An error of an object store and its cure, in words. `is_final`: a retry would fail the same way."""

    words: str
    is_final: bool


def explain_remote(error: BaseException) -> Explanation | None:
    """Explain an object-store client's error, without secrets; None for errors of other origin."""
    if not _is_remote(error):
        return None
    code, kind = re.search(r"<Code>(\w+)</Code>", str(error)), type(error).__name__
    message = redact(str(error).split("\n")[0].partition(": <?xml")[0]) + (f": {code[1]}" if code else "")
    if NO_IDENTITY.search(message):
        return Explanation(
            f"there are no credentials in the environment, and the machine has no identity of its own ({message}). Set "
            f"them (docs/object_storage.md lists the names), or AWS_SKIP_SIGNATURE=true for a public bucket",
            "status code: 4" in message,  # any other code may be a temporary failure of the identity service
        )
    if kind in {"NotFoundError", "FileNotFoundError"} or "404 Not Found" in message:
        return Explanation(f"there is no such bucket or container ({message}). Create it, or correct the URL", True)
    if "HTTP error: builder error" in message and "http://" in message:
        return Explanation(
            f"the client refuses an endpoint without https ({message}). Set AWS_ALLOW_HTTP=true (Azure: "
            f"AZURE_ALLOW_HTTP=true) in the environment, or use an endpoint that begins with https://",
            True,
        )
    if kind in {"UnauthenticatedError", "PermissionDeniedError", "PermissionError"} or DENIED.search(message):
        return Explanation(
            f"the object store does not allow it ({message}). Check the credentials in the environment, or the rights "
            f"of this machine's identity",
            True,
        )
    return Explanation(
        f"the object store did not answer as expected: {message}. Check the URL, the endpoint and the credentials in "
        f"the environment, and run the same command again",
        False,
    )
