"""What operating systems and object stores refuse, as StoreErrors that say what to do."""

import contextlib
import errno
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pipeline.core.credentials import redact
from pipeline.core.errors import InputError, LleError, StoreError

FULL = {errno.ENOSPC, errno.EDQUOT}
NO_IDENTITY = re.compile(r"//(169\.254\.\d+\.\d+|metadata\.google\.internal)\b")  # there clouds tell who a machine is
DENIED = re.compile(r"status code: 40[13] ")  # lists are refused by no error of their own
PLAIN = re.compile(r"Generic (S3|MicrosoftAzure) error: .*?(http://[^/\s]+)")  # never sent: https alone is allowed
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}
WRITE_PAUSES = (0.02, 0.1, 0.5, 2.0)  # seconds between attempts; object stores have retries of their own


@contextlib.contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn the refusals of the operating system or the object store into a StoreError that says what to do."""
    try:
        yield
    except Exception as error:
        if answer := answer_of(error):
            raise _refused(answer, where) from None
        if not isinstance(error, OSError):
            raise
        raise _explain(error, where) from None


def persist(write: Callable[[], Any], where: str) -> None:
    """Do a write, and again after a pause where the system refused it for a reason that may pass. Raises StoreError."""
    with storage_errors(where):
        for pause in WRITE_PAUSES:
            try:
                write()
            except OSError as error:
                if error.errno in FULL | FORBIDDEN:
                    raise
                time.sleep(pause)
            else:
                return
        write()


def _explain(error: OSError, where: str) -> StoreError:
    if error.errno in FULL:
        return StoreError(
            f"{where}: the disk is full ({error.strerror}). What is finished is kept: free space (`lle plan` says how "
            f"much a run needs) and run the same command again"
        )
    if error.errno in FORBIDDEN:
        refused = StoreError(f"{where}: access was refused: {error.strerror}. Mend its rights, or choose another place")
        refused.exit_code = 2
        return refused
    return StoreError(f"{where}: {type(error).__name__}: {error}")


def _is_remote(error: Exception) -> bool:
    """Whether obstore raised it, whose errors are partly its own and partly Python's."""
    unnumbered = isinstance(error, OSError) and error.errno is None
    return type(error).__module__.startswith("obstore") or (unnumbered and "Debug source" in str(error))


def said_by(error: Exception) -> str:
    """The sentence in what an object store's client says, and the service's own word for it; nothing secret."""
    code = re.search(r"<Code>(\w+)</Code>", str(error))
    return redact(str(error).split("\n")[0].partition(": <?xml")[0]) + (f": {code[1]}" if code else "")


class Answer(NamedTuple):
    """What an object store refused, and what to do, in words; final where asking again would end the same way."""

    words: str
    is_final: bool

    def of_input(self, where: str) -> LleError:
        """The same of an input: InputError where it is final, else an error that a retry may cure."""
        return (InputError if self.is_final else LleError)(f"{where}: {self.words}")


def answer_of(error: Exception) -> Answer | None:
    """What an object store's client says, without what may be secret in it; None for errors of anything else."""
    if not _is_remote(error):
        return None
    said, kind = said_by(error), type(error).__name__
    if NO_IDENTITY.search(said):
        return Answer(
            f"there are no credentials in the environment, and the machine's own identity cannot be had ({said}). Set "
            f"them (docs/object_storage.md has the names), or AWS_SKIP_SIGNATURE=true for a public bucket",
            "status code: 4" in said,  # anything else may be the service for identities, failing for a moment
        )
    if kind in {"NotFoundError", "FileNotFoundError"} or "404 Not Found" in said:
        return Answer(f"there is no such bucket or container ({said}). Create it, or correct the URL", True)
    if "HTTP error: builder error" in said and (plain := PLAIN.search(said)):
        variable = "AZURE_ALLOW_HTTP" if plain[1] == "MicrosoftAzure" else "AWS_ALLOW_HTTP"
        return Answer(
            f"the endpoint is {plain[2]}, and plain HTTP is refused unless {variable} is true in the environment "
            f"({said}). Set {variable}=true, or let the endpoint begin with https://", True
        )  # fmt: skip
    if kind in {"UnauthenticatedError", "PermissionDeniedError", "PermissionError"} or DENIED.search(said):
        return Answer(
            f"the object store does not allow it ({said}). Check the credentials in the environment, or the rights of "
            f"this machine's identity", True
        )  # fmt: skip
    return Answer(
        f"the object store did not answer as it should: {said}. Check the URL, the endpoint and the credentials in the "
        f"environment, and run the same command again", False
    )  # fmt: skip


def _refused(answer: Answer, where: str) -> StoreError:
    refused = StoreError(f"{where}: {answer.words}")
    refused.exit_code = 2 if answer.is_final else StoreError.exit_code
    return refused
