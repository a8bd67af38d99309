"""The steps of k8s/Dockerfile, run in a separate environment, because tests rarely have a container engine.

Absolute paths of the image are below a temporary folder; everything else is as in the file.
"""

import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

DOCKERFILE = REPOSITORY / "k8s" / "Dockerfile"
PATHS = re.compile(r"(?<![\w.}])/(opt|cache|src|tmp|usr/local/bin|usr/local/lib)(?=[/:\s'\"]|$)")


def instructions() -> list[tuple[str, str]]:
    """(instruction, the rest) in order, lines joined and comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line.strip()]


class TestText:
    """Checks of a linter for Dockerfiles, in case none is installed."""

    def test_base_images_have_tags_other_than_latest(self):
        [image] = [arguments for kind, arguments in instructions() if kind == "ARG"]
        assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+-slim-[a-z]+", image)
        assert {arguments.split()[0] for kind, arguments in instructions() if kind == "FROM"} == {"${PYTHON_IMAGE}"}

    def test_last_user_is_not_root(self):
        users = [arguments for kind, arguments in instructions() if kind == "USER"]
        assert users
        assert all(int(part) > 0 for part in users[-1].split(":"))
        last_run = max(n for n, (kind, _) in enumerate(instructions()) if kind == "RUN")
        assert [kind for kind, _ in instructions()].index("USER") > last_run

    def test_every_installation_is_pinned_and_leaves_no_cache(self):
        commands = [command for kind, arguments in instructions() if kind == "RUN" for command in arguments.split("&&")]
        installs = [command for command in commands if "pip install" in command]
        assert len(installs) == 2
        for command in installs:
            assert "--no-cache-dir" in command
            assert "--constraint constraints.txt" in command or "--no-deps ." in command
        assert not [command for command in commands if re.search(r"\b(curl|wget|sudo|ADD)\b", command)]
        for command in (command for command in commands if "apt-get install" in command):
            assert re.search(r"--no-install-recommends '\w+=[\w.*-]+' $", command)
        [packages] = [arguments for kind, arguments in instructions() if kind == "RUN" and "apt-get" in arguments]
        assert packages.endswith("rm -rf /var/lib/apt/lists/*")

    def test_process_1_is_an_init(self):
        [entry] = [json.loads(arguments) for kind, arguments in instructions() if kind == "ENTRYPOINT"]
        assert entry == ["tini", "--", "start"]
        assert any("'tini=" in arguments for kind, arguments in instructions() if kind == "RUN")

    def test_every_step_runs_in_sh(self):
        """`podman build` ignores SHELL, and sh has no pipefail: a failure before a pipe would be lost."""
        assert "SHELL" not in {kind for kind, _ in instructions()}
        assert not [
            arguments for kind, arguments in instructions() if kind == "RUN" and re.search(r"\s\|\s", arguments)
        ]

    def test_any_user_can_write_to_the_cache(self):
        """A tmpfs on a folder of the image belongs to root and has the folder's mode."""
        assert any("install -d -m 1777 /cache" in arguments for kind, arguments in instructions() if kind == "RUN")

    def test_no_secrets_and_shell_form_only_for_shell_commands(self):
        from lle.core.credentials import find_secret

        text = DOCKERFILE.read_text()
        assert find_secret(text) is None
        assert "--mount=type=secret" not in text
        for kind, arguments in instructions():
            if kind in {"ENTRYPOINT", "CMD"}:
                assert isinstance(json.loads(arguments), list)


def test_installed_python_files_are_not_compiled_again(tmp_path):
    """Covers files that pip compiled before their times were set, and files that the base image did not compile."""
    venv.create(tmp_path / "opt/lle")
    installed, of_base_image = tmp_path / "opt/lle/lib/installed.py", tmp_path / "usr/local/lib/own.py"
    of_base_image.parent.mkdir(parents=True)
    for path in (installed, of_base_image):
        path.write_text("x = 1\n")
    py_compile.compile(str(installed), doraise=True)
    commands = [command for kind, arguments in instructions() if kind == "RUN" for command in arguments.split("&&")]
    environment = {**os.environ, "PATH": f"{tmp_path}/opt/lle/bin:/usr/bin:/bin"}
    for command in (command for command in commands if "touch --no-dereference" in command or "compileall" in command):
        step(PATHS.sub(rf"{tmp_path}/\1", command), tmp_path, environment)
    assert installed.stat().st_mtime == 10**9  # numba's key
    imported = subprocess.run(
        [str(tmp_path / "opt/lle/bin/python"), "-v", "-c", "import installed, own"],
        env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{installed.parent}:{of_base_image.parent}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert compiled_again(imported.stderr, tmp_path) == []
    assert len(re.findall(r"# code object from '.*/(?:installed|own)\.cpython-\d+\.pyc'", imported.stderr)) == 2


def compiled_again(verbose: str, folder: Path) -> list[str]:
    """Sources below a folder that `python -v` says it read instead of their compiled form."""
    return re.findall(rf"# code object from '?({folder}/.*\.py)'?$", verbose, flags=re.MULTILINE)


@pytest.mark.manual
@pytest.mark.timeout(3600)
def test_all_steps_of_the_dockerfile_run(tmp_path):
    """Installs a gigabyte from the package index, compiles numba functions, and prints the help as in the image."""
    root = str(tmp_path)
    environment = {"PATH": f"{Path(sys._base_executable).parent}:{os.environ['PATH']}", "HOME": f"{root}/tmp"}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    for name in ("opt", "cache", "tmp", "usr/local/bin", "usr/local/lib"):
        (tmp_path / name).mkdir(parents=True)
    folder = tmp_path
    for kind, arguments in instructions():
        text = PATHS.sub(rf"{root}/\1", arguments)
        if kind == "WORKDIR":
            folder = Path(text)
            folder.mkdir(exist_ok=True)
        elif kind == "ENV":
            words = [word.partition("=")[::2] for word in text.split()]
            environment |= {name: value.strip('"').replace("$PATH", environment["PATH"]) for name, value in words}
        elif kind == "COPY" and "--from" not in text:
            copy(text.split(), folder)
        elif kind == "RUN" and "apt-get" not in arguments:  # Debian's packages would go to this machine
            step(text, folder, environment)
    assert list((tmp_path / "opt/numba-cache").rglob("*.nbi"))
    [command] = [json.loads(arguments) for kind, arguments in instructions() if kind == "CMD"]
    start = ["sh", f"{root}/usr/local/bin/start", *command]
    baked = {**environment, "LLE_BAKED_CACHE": f"{root}/opt/numba-cache"}
    completed = subprocess.run(start, env=baked, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
    assert "Usage: lle" in completed.stdout
    assert list((tmp_path / "cache/numba").rglob("*.nbi"))
    start = [f"{root}/opt/lle/bin/python", "-v", "-c", "import distributed, lle.cli.commands"]
    completed = subprocess.run(start, env=baked, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
    assert compiled_again(completed.stderr, tmp_path) == []


def copy(words: list[str], folder: Path) -> None:
    *sources, target = words
    place = folder / target
    for source in sources:
        if (REPOSITORY / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / source, place, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / source, place)


def step(command: str, folder: Path, environment: dict[str, str]) -> None:
    completed = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    if "No matching distribution found" in completed.stderr:
        pytest.skip("NOT CHECKED: no package index answers here")
    assert completed.returncode == 0, f"{command}\n{completed.stdout[-2000:]}\n{completed.stderr[-4000:]}"
