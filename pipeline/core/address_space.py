"""The limit of a process's address space (`ulimit -v`): libraries reserve far more of it than the memory they use."""

import errno
from importlib import import_module
from typing import Any

MIN_ADDRESS_SPACE = 2 * 2**30
"""Below this, importing the libraries fails in many ways, some of which end the process without a message."""
CURE = (
    "Raise the limit (ulimit -v unlimited) or free memory, and run the same command again. To bound memory, use "
    "execution.cluster.memory and eigensolver.max_memory"
)


def address_space_limit() -> int | None:
    """Bytes that this process may map; None without a limit."""
    try:
        resource: Any = import_module("resource")  # not on Windows
    except ImportError:
        return None
    limit: int = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def free_address_space() -> int | None:
    """Bytes that this process may still map; None without a limit."""
    limit = address_space_limit()
    if limit is None:
        return None
    import psutil  # core/startup looks at the limit before anything is imported

    return max(limit - int(psutil.Process().memory_info().vms), 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory or address space ran out: an allocation, a thread's stack, or a library."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and "can't start new thread" in text)
        or (isinstance(error, ImportError | OSError) and ("failed to map" in text or "annot allocate memory" in text))
    )


def explained(error: BaseException) -> str:
    """Type and text of an error, with the cure if memory ran out.

    >>> explained(ValueError("x"))
    'ValueError: x'
    """
    text = f"{type(error).__name__}: {error}"
    return f"memory or address space ran out ({text.rstrip(': ')}). {CURE}" if is_out_of_memory(error) else text
