"""Too little address space (`ulimit -v`): exit code 1 with the cure, and MKL is not loaded where it would not fit."""

import errno
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lle.core import address_space, machine
from lle.core.address_space import CURE, explained, is_out_of_memory
from lle.kernels.eigensolver import pardiso
from tests.support.commands import refused, write_config
from tests.support.paths import REPOSITORY


def limited(n_bytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lle", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes)),
    )


@pytest.mark.parametrize("n_bytes", [100 * 2**20, 1400 * 2**20])
def test_command_with_too_little_address_space_names_the_limit_and_the_cure(n_bytes):
    ended = limited(n_bytes, "validate", "configs/quickstart.yaml", "--json")
    assert ended.returncode == 1, ended
    answer = json.loads(ended.stdout)
    assert answer["error"] == "NotEnoughMemory"
    assert f"found {n_bytes >> 20} MiB (ulimit -v)" in answer["message"]
    assert CURE in ended.stderr


@pytest.mark.slow
def test_run_with_the_smallest_address_space_ends_with_a_result(tmp_path):
    config = write_config(
        tmp_path,
        input={"kind": "synthetic", "name": "swiss_roll", "n_points": 800},
        eigensolver={"method": "shift_invert"},
    )
    ended = limited(address_space.MIN_ADDRESS_SPACE, "run", str(config), "--json")
    assert ended.returncode in (0, 1), ended
    assert ended.returncode == 0 or CURE in ended.stderr


def test_available_memory_is_bounded_by_the_free_address_space(monkeypatch):
    monkeypatch.setattr(machine, "free_address_space", lambda: 12345)
    assert machine.available_memory() == 12345


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "no"),
        RuntimeError("can't start new thread"),
        ImportError("libx.so: failed to map segment from shared object"),
    ],
)
def test_exhausted_memory_is_named_with_the_cure(tmp_path, monkeypatch, error):
    def validate(config):
        raise error

    monkeypatch.setattr("lle.jobs.validate.validate", validate)
    config = write_config(tmp_path, input={"kind": "synthetic", "name": "swiss_roll", "n_points": 800})
    assert CURE in refused(1, "validate", config)
    assert is_out_of_memory(error)
    assert CURE in explained(error)


def test_other_errors_are_not_exhausted_memory():
    assert not is_out_of_memory(RuntimeError("x"))
    assert not is_out_of_memory(OSError(errno.ENOENT, "x"))


class TestMkl:
    @pytest.fixture(autouse=True)
    def _installed(self):
        if not pardiso.is_available():
            pytest.skip("MKL is not installed")

    def test_is_not_used_where_its_libraries_do_not_fit(self, monkeypatch):
        monkeypatch.setattr(pardiso, "free_address_space", lambda: 100 * 2**20)
        assert pardiso.load_mkl.__wrapped__() is None

    @pytest.mark.slow
    @pytest.mark.parametrize("damage", ["missing", "cut off"])
    def test_is_not_used_where_a_library_is_missing_or_damaged(self, tmp_path, damage):
        installed = Path(pardiso.load_mkl()._name)
        for path in installed.parent.glob("libmkl_*"):
            (tmp_path / path.name).symlink_to(path)
        runtime = tmp_path / installed.name
        code = (
            "import sys; from pathlib import Path; from lle.kernels.eigensolver import pardiso\n"
            "try: pardiso._open_parts(Path(sys.argv[1])); print('opened')\n"
            "except OSError as error: print(error)"
        )

        def opened() -> str:  # in a process of its own: this one may have loaded the library
            command = [sys.executable, "-c", code, str(runtime)]
            return subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout

        assert opened() == "opened\n"
        core = next(tmp_path.glob("libmkl_core.*"))
        core.unlink()
        if damage == "cut off":
            core.write_bytes(b"\x7fELF")
        assert "core" in opened()
