"""The script is hidden from new processes, not from other threads, and is there again afterwards."""

import pickle
import sys
from multiprocessing.spawn import get_preparation_data
from types import ModuleType

import pytest

from lle.core.main_script import hidden_main_script

IMPORTS = {"init_main_from_name", "init_main_from_path"}


class Mine:
    pass


@pytest.fixture
def script(monkeypatch) -> ModuleType:
    module = ModuleType("__main__")
    module.__file__, module.Mine = "script.py", Mine
    monkeypatch.setattr(Mine, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_new_processes_do_not_import_the_script(script):
    assert IMPORTS & get_preparation_data("p").keys() == {"init_main_from_path"}
    with hidden_main_script():
        assert IMPORTS & get_preparation_data("p").keys() == set()
    assert IMPORTS & get_preparation_data("p").keys() == {"init_main_from_path"}


def test_objects_of_the_script_can_be_pickled_meanwhile(script):
    with hidden_main_script():
        assert isinstance(pickle.loads(pickle.dumps(Mine())), Mine)
        with pytest.raises(AttributeError, match="missing"):
            pickle.loads(b"c__main__\nmissing\n.")


def test_the_script_is_there_again_when_all_blocks_have_ended(script):
    first, second = hidden_main_script(), hidden_main_script()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.modules["__main__"] is not script
    second.__exit__(None, None, None)
    assert sys.modules["__main__"] is script
    with pytest.raises(InterruptedError), hidden_main_script():
        raise InterruptedError
    assert sys.modules["__main__"] is script
