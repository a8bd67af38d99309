"""Secrets are found in configs and URLs, refused without being shown, and removed from messages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lle.config.allowed_places import VARIABLE, check_places
from lle.config.fields import Name
from lle.config.load import json_schema, load_config
from lle.config.models import Config
from lle.core import credentials
from lle.core.credentials import SECRET_NAME, find_secret, redact, secrets_in
from lle.core.errors import ConfigError
from lle.storage.objects import open_objects
from tests.support.paths import REPOSITORY

KEY_ID = "AKIA" + "IOSFODNN7EXAMPLE"
PASSWORD = "hunter2-and-more"
SECRETS = {
    "user in a URL": f"s3://me:{PASSWORD}@bucket/x.zarr",
    "user without a password": f"https://{PASSWORD}@example.com/x.zarr",
    "AWS key id": f"s3://bucket/{KEY_ID}/x.zarr",
    "signed URL": f"https://bucket.example.com/x.zarr?X-Amz-Expires=9&X-Amz-Signature={PASSWORD}",
    "shared access signature": f"https://account.example.com/x?sv=2020&sig={PASSWORD}",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{PASSWORD}",
    "shell line": f"export AWS_SECRET_ACCESS_KEY={PASSWORD}",
}
HARMLESS = [
    "s3://bucket/points.zarr",
    "az://container/x",
    "abfss://container@account.example.com/x.zarr",
    "/data/a@b/x.npy",
    "runs/AKIA.zarr",
    "tls://host:8786",
    "--constraint=avx512",
    "module load token-ring",
    "x.zarr?versionId=3",
    "https://example.com/a@b.zarr",
    "C:\\data\\x.npy",
    "export TOKEN=$FROM_THE_JOB",
]


def job(**sections) -> dict:
    return {"input": {"kind": "npy", "path": "x.npy"}, "output": {"store": "run.zarr"}, **sections}


def written(folder: Path, data: dict) -> Path:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


class TestFinding:
    @pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
    def test_secrets_are_found(self, text):
        kind = find_secret(text)
        assert kind is not None
        assert PASSWORD not in kind

    @pytest.mark.parametrize("text", HARMLESS)
    def test_ordinary_values_are_not_secrets(self, text):
        assert find_secret(text) is None

    def test_values_of_the_environment(self, monkeypatch):
        assert find_secret(f"x-{PASSWORD}") is None
        monkeypatch.setenv("MY_SECRET", PASSWORD)
        assert find_secret(f"x-{PASSWORD}") is not None
        assert redact(f"failed with {PASSWORD}, s3://a:b@c/d") == "failed with ***, s3://***@c/d"

    @pytest.mark.parametrize(
        "name",
        [
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SSE_CUSTOMER_KEY_BASE64",
            "AZURE_STORAGE_MASTER_KEY",
            "AZURE_ENCRYPTION_KEY",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
        ],
    )
    @pytest.mark.parametrize("value", [PASSWORD, f"/{PASSWORD}", f"~{PASSWORD}"])
    def test_every_variable_that_obstore_takes_a_secret_from(self, monkeypatch, name, value):
        """Some secrets look like paths."""
        monkeypatch.setenv(name, value)
        assert find_secret(f"x-{value}") is not None
        assert redact(f"failed with {value}") == "failed with ***"

    def test_environment_is_read_once_for_a_whole_config(self, monkeypatch):
        reads, read = [], credentials._environment
        monkeypatch.setattr(credentials, "_environment", lambda: reads.append(1) or read())
        monkeypatch.setenv("SOME_PASSWORD", "sesame-of-forty-thieves")
        data = {"a": {"b": ["x", "y", {"c": "sesame-of-forty-thieves"}]}, "d": "z"}
        assert list(credentials.secrets_in(data)) == [("a.b.c", "the value of a secret variable of the environment")]
        assert len(reads) == 1

    def test_path_of_a_secret_is_not_a_secret(self, tmp_path, monkeypatch):
        (tmp_path / "token").touch()
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/of/another/pod")
        monkeypatch.setenv("MY_TOKEN", str(tmp_path / "token"))
        for text in ("/var/run/of/another/pod", str(tmp_path / "token")):
            assert find_secret(text) is None
            assert redact(text) == text

    def test_no_key_of_the_config_is_named_like_a_secret(self):
        text = json.dumps(json_schema())
        names = {name for model in json_schema()["$defs"].values() for name in model.get("properties", {})}
        assert "n_neighbors" in names
        assert not [name for name in names if SECRET_NAME.search(name)], text

    @pytest.mark.parametrize("path", sorted((REPOSITORY / "configs").glob("*.yaml")), ids=lambda path: path.name)
    def test_shipped_configs_contain_no_secrets(self, path):
        assert list(secrets_in(yaml.safe_load(path.read_text()))) == []


class TestConfigs:
    @pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS)
    @pytest.mark.parametrize("where", ["input", "store", "deep"])
    def test_config_with_a_secret_is_refused_without_showing_it(self, tmp_path, text, where):
        data = {
            "input": job(input={"kind": "zarr", "url": text}),
            "store": job(output={"store": text}),
            "deep": job(execution={"cluster": {"kind": "slurm", "prologue": ["true", text]}}),
        }[where]
        with pytest.raises(ConfigError, match="what looks like a secret") as caught:
            load_config(written(tmp_path, data))
        message = str(caught.value)
        assert {"input": "input.url", "store": "output.store", "deep": "execution.cluster.prologue"}[where] in message
        assert "environment" in message
        assert PASSWORD not in message
        assert KEY_ID not in message

    @pytest.mark.parametrize("name", ["password", "secret_access_key", "aws_session_token", "account_key", "apiKey"])
    def test_keys_named_like_secrets(self, tmp_path, name):
        data = job(input={"kind": "zarr", "url": "s3://b/x", "storage_options": {name: PASSWORD}})
        with pytest.raises(ConfigError, match=rf"input\.storage_options\.{name}: a key") as caught:
            load_config(written(tmp_path, data))
        assert PASSWORD not in str(caught.value)

    @pytest.mark.parametrize(
        "override",
        [
            f"input.url=s3://me:{PASSWORD}@b/x",
            f"output.password={PASSWORD}",
            f"output.store.x=s3://me:{PASSWORD}@b/x",
            f"s3://me:{PASSWORD}@b/x",
            f"input.url='s3://me:{PASSWORD}@b/x",
        ],
    )
    def test_overrides(self, tmp_path, override):
        with pytest.raises(ConfigError) as caught:
            load_config(written(tmp_path, job()), (override,))
        assert PASSWORD not in str(caught.value)

    def test_text_that_is_no_yaml(self, tmp_path):
        path = tmp_path / "job.yaml"
        path.write_text(f"output: {{store: [s3://me:{PASSWORD}@b/x}}")
        with pytest.raises(ConfigError, match="not valid YAML") as caught:
            load_config(path)
        assert PASSWORD not in str(caught.value)

    @pytest.mark.slow
    def test_command_with_a_secret_exits_with_2_without_showing_it(self, tmp_path):
        config_path = written(tmp_path, job(output={"store": SECRETS["user in a URL"]}))
        for arguments in (["run", str(config_path)], ["status", SECRETS["user in a URL"]]):
            command = [sys.executable, "-m", "lle", *arguments, "--json"]
            completed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
            assert completed.returncode == 2, completed.stderr
            assert json.loads(completed.stdout)["error"] == "ConfigError"
            assert PASSWORD not in completed.stdout + completed.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]

    @pytest.mark.parametrize("text", [SECRETS["user in a URL"], SECRETS["signed URL"]])
    def test_urls_of_stores(self, text):
        with pytest.raises(ConfigError, match="the URL holds") as caught:
            open_objects(text)
        assert PASSWORD not in str(caught.value)


class TestConfinement:
    """Configs from other people may only use places that the operator of the machine has listed."""

    @pytest.fixture
    def load(self, tmp_path, monkeypatch):
        """`load(**sections)` of a config, with folder `data` and one bucket allowed."""
        (tmp_path / "data").mkdir()
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(VARIABLE, f"{tmp_path}/data s3://ours/public")
        base = {"input": {"kind": "npy", "path": "data/x.npy"}, "output": {"store": "s3://ours/public/run.zarr"}}
        return lambda **sections: load_config(written(tmp_path, base | sections))

    @pytest.mark.parametrize(
        "sections",
        [
            {},
            {"input": {"kind": "synthetic", "name": "swiss_roll", "n_points": 9}},
            {"input": {"kind": "npz", "path": "data/a/*.npz", "key": "x", "labels": "/name/of/an/array"}},
            {"neighbors": {"precomputed": {"kind": "npy", "path": "data/graph.npy"}}},
            {
                "input": {"kind": "csv", "path": "data/x.csv", "columns": ["x"]},
                "neighbors": {"k_per_point": "a column"},
            },
            {"output": {"store": "data/../data/run.zarr"}},
            {"embedding": {"align": "data/old.zarr"}},
            {"output": {"store": "s3://ours/public"}},
            {"input": {"kind": "parquet", "path": "s3://ours/public/*/x?.parquet"}},
        ],
    )
    def test_places_inside_the_allowed_ones_are_accepted(self, load, sections):
        assert load(**sections)

    @pytest.mark.parametrize(
        "sections",
        [
            {"input": {"kind": "npy", "path": "/etc/passwd"}},
            {"input": {"kind": "npy", "path": "data/../elsewhere/x"}},
            {"input": {"kind": "npy", "path": "data/x.npy", "labels": "elsewhere/y.npy"}},
            {"input": {"kind": "csv", "path": "*/x.csv"}},
            {"input": {"kind": "zarr", "url": "s3://theirs/x"}},
            {"neighbors": {"precomputed": {"kind": "npy", "path": "elsewhere/graph.npy"}}},
            {"neighbors": {"precomputed": {"kind": "zarr", "url": "s3://theirs/graph.zarr"}}},
            {"neighbors": {"k_per_point": "elsewhere/k.npy"}},
            {"input": {"kind": "parquet", "path": "s3://theirs/*.parquet"}},
            {"input": {"kind": "csv", "path": "s3://ours/*/x.csv"}},
            {"input": {"kind": "npy", "path": "s3://ours/public/..\\x.npy"}},
            {"input": {"kind": "npy", "path": "s3://ours/public/x.npy", "labels": "s3://ours/public/.%09./y.npy"}},
            {"input": {"kind": "zarr", "url": "file:///etc"}},
            {"input": {"kind": "zarr", "url": "s3://ours/public/../x"}},
            {"embedding": {"align": "elsewhere/old.zarr"}},
            {"output": {"store": "data2/run.zarr"}},
            {"output": {"store": "s3://ours/public2/run.zarr"}},
            {"output": {"store": "data/run.zarr", "prometheus": "/var/lib/x.prom"}},
            {"execution": {"cluster": {"kind": "address", "address": "tcp://10.0.0.1:8786"}}},
            {"execution": {"cluster": {"kind": "slurm", "prologue": ["rm -rf ~"]}}},
            {"execution": {"cluster": {"kind": "slurm", "directives": ["--wrap=x"]}}},
            {"execution": {"cluster": {"kind": "slurm", "log_directory": "/tmp"}}},
            {"execution": {"cluster": {"kind": "slurm", "local_directory": "/tmp"}}},
            {"execution": {"cluster": {"kind": "slurm", "local_directory": "data/$NOTHING/.."}}},
        ],
    )
    def test_places_outside_the_allowed_ones_are_refused(self, load, sections):
        with pytest.raises(ConfigError, match=VARIABLE) as caught:
            load(**sections)
        assert caught.value.exit_code == 2

    @pytest.mark.parametrize("key", ["partition", "account", "interface", "log_directory", "local_directory"])
    @pytest.mark.parametrize("text", ["data\ntouch EVIL", "data EVIL", "data;touch EVIL", "data$(touch EVIL)"])
    def test_no_other_key_can_add_commands_to_a_job_script(self, load, key, text):
        with pytest.raises(ConfigError, match=key) as caught:
            load(execution={"cluster": {"kind": "slurm", key: text}})
        assert caught.value.exit_code == 2
        assert load(execution={"cluster": {"kind": "slurm", key: "data"}})

    def test_new_key_is_restricted_until_it_is_marked_as_a_name(self, load):
        class More(Config):
            log: str = "elsewhere/log.txt"
            title: Name = "/a/title"

        data = load().model_dump(mode="json")
        with pytest.raises(ConfigError, match=f"log: .*elsewhere/log.txt is outside.*{VARIABLE}"):
            check_places(More.model_validate(data))
        check_places(More.model_validate({**data, "log": "data/log.txt"}))

    def test_links_and_matches_of_patterns_are_checked(self, load):
        os.symlink("../elsewhere", "data/way_out")
        Path("elsewhere/x.npy").touch()
        folder = Path("data").resolve()
        urls = [f"file://{folder}/way_out/x.npy", f"file://{folder}/*/x.npy", f"file://{folder}/%2A/x.npy"]
        for path in ("data/way_out/x.npy", "data/*/x.npy", "data/**/x.npy", *urls):
            with pytest.raises(ConfigError, match=VARIABLE):
                load(input={"kind": "npy", "path": path})

    def test_links_inside_allowed_folders_are_checked(self, load):
        """Also behind a link that stays inside, and with links that form a cycle."""
        os.makedirs("data/in.zarr/points")
        os.makedirs("data/other")
        os.symlink("../../other", "data/in.zarr/points/c")
        os.symlink("../in.zarr", "data/other/back")
        source = {"kind": "zarr", "url": "data/in.zarr", "array": "points"}
        named = {"input": source}, {"output": {"store": "data/in.zarr"}}
        for sections in named:
            assert load(**sections)
        os.symlink("../../elsewhere", "data/other/out")
        for sections in named:
            with pytest.raises(ConfigError, match=f"elsewhere is outside.*{VARIABLE}"):
                load(**sections)

    def test_everything_is_allowed_without_the_variable(self, load, monkeypatch):
        monkeypatch.delenv(VARIABLE)
        assert load(input={"kind": "npy", "path": "/etc/passwd"})
