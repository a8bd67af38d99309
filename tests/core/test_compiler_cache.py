"""Compiled functions that the cache of this machine holds."""

import sys

from lle.core.compiler_cache import is_compiled


def test_functions_compiled_for_this_python_are_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "folder").mkdir()
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    (tmp_path / "folder" / f"module.function.locals.search-73.{version}.nbi").touch()
    (tmp_path / "folder" / "module.other-5.py30.nbi").touch()
    assert is_compiled("module.function")
    assert not is_compiled("module.other"), "it is compiled for another Python"
    assert not is_compiled("module.func")
