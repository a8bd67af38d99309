"""The image: contents of k8s/Dockerfile, and its entry script."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lle.core.machine import library_environment
from tests.support.manifest_parts import by_name, image_environment, pods
from tests.support.manifest_schemas import K8S, OVERLAYS
from tests.support.paths import REPOSITORY


class TestImage:
    @pytest.mark.parametrize("overlay", OVERLAYS)
    def test_runs_as_the_user_of_the_pods(self, overlay):
        users = re.findall(r"^USER (\d+):(\d+)$", (K8S / "Dockerfile").read_text(), flags=re.MULTILINE)
        for pod in pods(by_name(f"overlays/{overlay}")).values():
            context = pod["spec"]["securityContext"]
            assert users == [(str(context["runAsUser"]), str(context["runAsGroup"]))]

    @pytest.mark.parametrize("overlay", OVERLAYS)
    def test_pods_run_on_processors_the_image_is_compiled_for(self, overlay):
        assert image_environment()["NUMBA_CPU_NAME"].startswith("x86-64")
        for pod in pods(by_name(f"overlays/{overlay}")).values():
            assert pod["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}

    def test_sets_the_environment_that_mkl_reads_when_it_loads(self):
        environment = image_environment()
        assert {name: environment.get(name) for name in library_environment()} == library_environment()

    def test_installs_the_tested_versions(self):
        text = (K8S / "Dockerfile").read_text()
        assert "--constraint constraints.txt '.[k8s,s3]'" in text
        pinned = {line.split("==")[0].lower() for line in (REPOSITORY / "constraints.txt").read_text().splitlines()}
        assert {"kubernetes", "obstore", "dask", "distributed", "numpy", "zarr", "prometheus-client"} <= pinned

    def test_copied_files_are_in_the_build_context(self):
        allowed = {line[1:] for line in (K8S / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (K8S / "Dockerfile").read_text(), flags=re.MULTILINE)
        sources = {source for line in copied for source in line.split()}
        assert sources == allowed
        assert all((REPOSITORY / source).exists() for source in sources)

    def test_linter_has_no_findings(self):
        linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if linter is None:
            pytest.skip("NOT CHECKED: hadolint is not installed")
        completed = subprocess.run([linter, str(K8S / "Dockerfile")], capture_output=True, text=True, timeout=60)
        assert (completed.returncode, completed.stdout) == (0, "")

    def test_python_version_is_supported(self):
        [version] = re.findall(r"python:(\d+\.\d+)-slim", (K8S / "Dockerfile").read_text())
        assert "3.11" <= version <= "3.13"


class TestStart:
    """The entry script gives numba a writable copy of the cache in the image."""

    def start(self, folder: Path) -> str:
        places = {"LLE_BAKED_CACHE": str(folder / "baked"), "NUMBA_CACHE_DIR": str(folder / "cache/n")}
        completed = subprocess.run(
            ["sh", str(K8S / "start.sh"), "sh", "-c", 'echo "$1"', "sh", "a b"],
            env={**os.environ, **places},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return completed.stdout

    def test_entry_copies_the_cache_once_and_runs_the_command(self, tmp_path):
        (tmp_path / "baked").mkdir()
        (tmp_path / "baked" / "x.nbi").write_text("1")
        (tmp_path / "baked" / "x.nbi").chmod(0o444)
        os.utime(tmp_path / "baked" / "x.nbi", (10**9, 10**9))
        assert self.start(tmp_path) == "a b\n"
        copied = tmp_path / "cache/n/x.nbi"
        assert (copied.read_text(), copied.stat().st_mtime, copied.stat().st_mode & 0o200) == ("1", 10**9, 0o200)
        copied.write_text("2")
        assert self.start(tmp_path) == "a b\n"  # a container that starts again keeps what it compiled
        assert copied.read_text() == "2"

    def test_entry_copies_again_after_a_kill_during_the_copy(self, tmp_path):
        for place in ("baked", "cache/n.copy"):
            (tmp_path / place).mkdir(parents=True)
            (tmp_path / place / f"of-{place[:5]}.nbi").write_text("1")
        assert self.start(tmp_path) == "a b\n"
        assert [path.name for path in (tmp_path / "cache").rglob("*")] == ["n", "of-baked.nbi"]

    def test_entry_works_without_a_cache_in_the_image(self, tmp_path):
        assert self.start(tmp_path) == "a b\n"

    def test_entry_names_a_cache_folder_that_cannot_be_written(self, tmp_path):
        (tmp_path / "baked").mkdir()
        (tmp_path / "cache").write_text("a file in place of the folder")
        with pytest.raises(subprocess.CalledProcessError) as ended:
            self.start(tmp_path)
        assert ended.value.returncode == 2
        assert ended.value.stderr.startswith(f"start: user {os.getuid()} cannot write to {tmp_path}/cache, where numba")
