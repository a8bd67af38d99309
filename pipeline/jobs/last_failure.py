"""The record of the error that ended the last run in a store; a run that succeeds deletes it."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ..core.address_space import explained, is_out_of_memory
from ..core.credentials import redact
from ..core.errors import Interrupted, LleError, StoreError
from ..storage import records
from ..storage.store import Store

FAILURE = "_run/failure.json"


@contextlib.contextmanager
def failure_recorded(url: str) -> Iterator[None]:
    """Around a run: an error that ends it is recorded in its store, if there is one; success deletes the record."""
    try:
        yield
    except (Exception, Interrupted) as error:
        store = Store(url)
        with contextlib.suppress(Exception):  # the store may be what failed
            if store.has_versions() or store.is_run():
                store.put_json(FAILURE, _described(error))
        raise
    with contextlib.suppress(StoreError):
        Store(url).objects.delete(FAILURE)


def _described(error: BaseException) -> dict[str, Any]:
    """Time, exit code and message (one line) of an error that ends a run."""
    if isinstance(error, LleError | Interrupted):
        text, code = str(error), error.exit_code
    else:
        text, code = explained(error) if is_out_of_memory(error) else f"{type(error).__name__}: {error}", 1
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"when": when, "exit_code": code, "message": " ".join(redact(text).split())}


def last_failure(store: Store) -> dict[str, Any] | None:
    """The record of the last run's error; None if it succeeded or is the first."""
    return store.get_record(FAILURE, records.FAILURE)
