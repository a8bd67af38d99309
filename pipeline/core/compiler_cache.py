"""A folder for numba's compiled functions, for users that can write neither the package's folder nor a home."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path


def ensure_compiler_cache() -> None:
    """Set NUMBA_CACHE_DIR to a private folder, deleted at exit, if numba has no writable folder: its import would fail.

    Called before numba is imported; worker processes inherit the variable. The folder has a random name because numba
    unpickles the files in it.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(Path(__file__).parents[1], os.W_OK) or _writable(_user_cache()):
        return
    folder = tempfile.mkdtemp(prefix="lle-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def is_compiled(function: str) -> bool:
    """Whether the cache of this machine holds a function, named `module.function` without its package."""
    package, version = Path(__file__).parents[1], f"py{sys.version_info.major}{sys.version_info.minor}"
    place = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(place)] if place else [package, _user_cache() / "numba"]
    return any(version in file.name for folder in folders for file in folder.rglob(f"{function}.*.nbi"))


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))


def _writable(folder: Path) -> bool:
    """Whether the folder, or the nearest parent that exists, can be written."""
    return os.access(next(place for place in (folder, *folder.parents) if place.exists()), os.W_OK)
