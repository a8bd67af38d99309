"""The config file: accepted values, defaults, and error messages."""

import contextlib
import json
from typing import Annotated

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from lle.config import fields, yaml_io
from lle.config.fields import parse_size
from lle.config.load import check_config, json_schema, load_config, read_settings, resolved
from lle.config.models import Config
from lle.config.yaml_io import to_yaml
from lle.core.errors import ConfigError
from tests.support.paths import REPOSITORY

CONFIGS = REPOSITORY / "configs"
WHOLE = "should be a whole number (integer)"
MINIMAL = "input: {kind: synthetic, name: s_curve, n_points: 100}\noutput: {store: x.zarr}\n"


@pytest.fixture
def load(tmp_path):
    """`load(yaml_text, *overrides, store=None)`; sections that the text leaves out are the minimal ones."""

    def load(text: str = "", *overrides: str, store: str | None = None) -> Config:
        path = tmp_path / "c.yaml"
        sections = yaml.safe_load(text) or {}
        missing = [line for line in MINIMAL.splitlines() if line.split(":")[0] not in sections]
        path.write_text("\n".join([*missing, text]))
        return load_config(path, overrides, store)

    return load


def refusal(load, *arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*arguments)
    assert caught.value.exit_code == 2
    return str(caught.value)


class TestShippedConfigs:
    @pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
    def test_loads_and_names_its_schema(self, path):
        config = load_config(path)
        assert config.output.store
        assert path.read_text().splitlines()[0] == "# yaml-language-server: $schema=schema.json"

    def test_documented_configs_exist(self):
        assert {"quickstart.yaml", "mnist.yaml", "cluster.yaml"} <= {path.name for path in CONFIGS.glob("*.yaml")}

    def test_committed_schema_is_the_models(self):
        path = CONFIGS / "schema.json"
        if not path.exists():
            pytest.skip("configs/schema.json is not there; `make schema` writes it")
        assert json.loads(path.read_text()) == json_schema(), "run `make schema`"


class TestDefaults:
    def test_resolved_config_reads_back_equal(self, load, tmp_path):
        config = load("preprocess: {pca: 3}\nexecution: {cluster: {memory: 4GiB}}\ninput: {kind: npz, path: x.npz}")
        path = tmp_path / "resolved.yaml"
        path.write_text(to_yaml(resolved(config)))
        assert load_config(path) == config

    def test_config_cannot_be_changed(self, load):
        config = load()
        with pytest.raises(ValidationError, match="frozen"):
            config.method = "ltsa"
        with pytest.raises(ValidationError, match="frozen"):
            config.neighbors.n_neighbors = 5


def test_factored_needs_a_square_factor_and_has_no_effect_on_pca(load):
    """So the advice of a report to set `method: pca` can be followed with any eigensolver."""
    text = "method: {}\neigensolver: {{method: factored}}"
    assert [load(text.format(method)).method for method in ("lle", "pca")] == ["lle", "pca"]
    with pytest.raises(ConfigError, match="only lle has a square factor"):
        load(text.format("ltsa"))


# Wrong text, then what the message must hold: the key, what was found, what is allowed.
WRONG = [
    ("neighbours: {}", ["neighbours: unknown key", "quality", "did you mean neighbors?"]),
    ("neighbors: {n_neighbours: 3}", ["neighbors.n_neighbours: unknown key", "; did you mean n_neighbors?"]),
    ("neighbors: {csv: 3}", ["neighbors.csv: unknown key"]),
    ("neighbors: 12", ["neighbors: expected a section, keys with their values; found 12"]),
    ("neighbors: ", ["neighbors: expected a section, keys with their values; found nothing"]),
    ("neighbors: {precomputed: {path: x}}", ["neighbors.precomputed.kind: required; one of npy, zarr"]),
    (
        "neighbors: {precomputed: {kind: npx, path: x}}",
        ["precomputed.kind: should be 'npy', 'zarr' or 'anndata'; found 'npx'"],
    ),
    ("weights: {reg: 2020-01-01}", ["weights.reg: should be a number or 'auto'; found the date 2020-01-01"]),
    ("execution: {cluster: {memory: 2}}", ["cluster.memory: 2 bytes are less than 1 MiB", "unit", '"4GiB"']),
    ("execution: {cluster: {kind: slrum}}", ["execution.cluster.kind: ", "did you mean slurm?"]),
    ("output: {store: 3}", ["output.store: should be text", "found 3"]),
    ("neighbors: {k: 3}", ["neighbors.k: unknown key", "found value 3", "n_neighbors, reverse, min_recall, seed"]),
    ("execution: {cluster: {cores: 3}}", ["execution.cluster.cores: unknown key", "kind, workers, memory, address"]),
    ("input: {kind: csv, path: x, key: y}", ["input.key: unknown key", "'y'", "kind, path, columns, label"]),
    ("input: {kind: hdf5, path: x}", ["input.kind: ", "'hdf5'", "'synthetic', 'zarr', 'npy', 'npz', 'idx', 'parquet'"]),
    ("input: {path: x}", ["input.kind: required; one of synthetic, zarr, npy, npz, idx, parquet, csv"]),
    ("input: {kind: parket, path: x}", ["input.kind: should be 'synthetic'", "'parket'; did you mean parquet?"]),
    ("input: {kind: parquet, path: x, columns: z}", ["input.columns: expected a list such as [z]; found 'z'"]),
    ("input: x", ["input: expected a section", "'x'"]),
    ("input: {kind: [a]}", ["input.kind: should be 'synthetic'", "['a']"]),
    ("input: {kind: npy}", ["input.path: required"]),
    ("input: {kind: synthetic, name: donut}", ["input.name: ", "'donut'", "'swiss_roll'", "'digits'"]),
    ("input: {kind: npz, path: x, columns: [0, a]}", ["input.columns.1: ", "'a'", "integer"]),
    ("output: {image_shape: [28]}", ["output.image_shape: should have at least 2 entries; found [28]"]),
    ("output: {image_shape: [2, 2, 2, 2]}", ["output.image_shape: should have at most 3 entries"]),
    ("output: {}", ["output.store: required"]),
    ("output: {store: ''}", ["output.store: ", "should not be empty", "''"]),
    ("method: ltas", ["; did you mean ltsa?"]),
    ("method: isomap", ["method: should be 'lle', 'modified'", "'isomap'"]),
    ("neighbors: {n_neighbors: many}", ["neighbors.n_neighbors: ", "'many'", "integer"]),
    ("neighbors: {n_neighbors: 12.5}", ["neighbors.n_neighbors: ", "12.5", "integer"]),
    ("neighbors: {n_neighbors: 1e300}", ["neighbors.n_neighbors: ", "found 1e+300", "integer"]),
    ("neighbors: {n_neighbors: 1}", ["neighbors.n_neighbors: ", "found 1", "greater than or equal to 2"]),
    ("neighbors: {radius: 1.0e40}", ["radius is 1e+40, outside of the range of float32"]),
    ("neighbors: {reverse: -1}", ["neighbors.reverse: ", "found -1", "greater than or equal to 0", "'auto'"]),
    ("weights: {reg: .nan}", ["weights.reg: ", "nan", "finite"]),
    ("execution: {cluster: {memory: 4GX}}", ["execution.cluster.memory: ", "'4GX'", '"4GiB"', "auto"]),
    ("execution: {cluster: {memory: -4}}", ["execution.cluster.memory: ", "found -4", "greater than 0"]),
    ("eigensolver: {max_memory: lots}", ["eigensolver.max_memory: ", "'lots'", '"4GiB"', "auto"]),
    ("execution: {cluster: {kind: address}}", ["execution.cluster.address goes with kind: address"]),
    ("execution: {cluster: {address: 'tcp://x:1'}}", ["execution.cluster.address goes with kind: address"]),
    ("execution: {cluster: {kind: address, address: 'tls://x:1'}}", ["tls {ca, cert, key} goes with", "'tls://x:1'"]),
    ("execution: {cluster: {kind: address, address: 'tcp://x:1', tls: {ca: a, cert: b, key: c}}}", ["'tcp://x:1'"]),
    ("execution: {cluster: {kind: address, address: 'tls://x:1', tls: {cat: a}}}", ["tls.cat: unknown", "ca, cert"]),
    *(
        (
            f"execution: {{cluster: {{kind: address, address: '{invalid}'}}}}",
            ["expected tcp://HOST:PORT", repr(invalid)],
        )
        for invalid in ("foo", "http://x:1", "tcp://x", "TLS://x:1", "tcp://:1", "tcp://x:1/y")
    ),
    *(
        (f"execution: {{cluster: {{kind: slurm, {key}: {json.dumps(invalid)}}}}}", [f"cluster.{key}: ", "should match"])
        for key in ("partition", "account", "interface")
        for invalid in ("main\ntouch EVIL", "main\n", "a b", "a;b", "$(a)", "--wrap=a", "")
    ),
    *(
        (f"execution: {{cluster: {{kind: slurm, {key}: {json.dumps(invalid)}}}}}", [f"cluster.{key}: ", "letters"])
        for key in ("log_directory", "local_directory")
        for invalid in (
            "/a\ntouch EVIL",
            "/a\n",
            "/a b",
            "/a;b",
            "/$(a)",
            "/`a`",
            "/${A:-b}",
            "--preload=a",
            "~+/a",
            "",
        )
    ),
    ("execution: {cluster: {kind: slurm, log_directory: $HOME/logs}}", ["cluster.log_directory: ", "letters"]),
    ("execution: {cluster: {memory_resource: BIG}}", ["memory_resource goes with kind: address"]),
    ("execution: {cluster: {kind: mesos}}", ["execution.cluster.kind: ", "'mesos'", "'kubernetes' or 'slurm'"]),
    ("execution: {cluster: {kind: kubernetes, image: x}}", ["cluster.image: unknown key", "kind, workers, memory"]),
    ("execution: {cluster: {kind: kubernetes, name: A_b}}", ["execution.cluster.name: ", "'A_b'"]),
    ("execution: {cluster: {kind: slurm, walltime: 4h}}", ["execution.cluster.walltime: ", '"04:00:00"', "'4h'"]),
    ("execution: {cluster: {kind: slurm, memory: auto}}", ["execution.cluster.memory", "4GiB"]),
]


class TestRefusals:
    @pytest.mark.parametrize(("text", "parts"), WRONG, ids=[text for text, _ in WRONG])
    def test_error_names_key_value_and_allowed_values(self, load, text, parts):
        message = refusal(load, text)
        for part in parts:
            assert part in message

    def test_every_mistake_is_listed(self, load):
        message = refusal(load, "neighbors: {n_neighbors: x}\neigensolver: {tol: -1}\nwhat: 1")
        assert all(key in message for key in ("neighbors.n_neighbors", "eigensolver.tol", "what"))
        assert message.count("\n  - ") == 3

    @pytest.mark.parametrize(("k", "m"), [(5, 5), (5, 9), (2, 2)])
    def test_n_components_above_the_dimension_of_neighborhoods_is_refused(self, load, k, m):
        message = refusal(load, f"neighbors: {{n_neighbors: {k}}}\neigensolver: {{n_components: {m}}}")
        for part in (f"eigensolver.n_components is {m}", f"neighbors.n_neighbors is {k}", f"to {m + 1} or more"):
            assert part in message
        assert load(f"neighbors: {{n_neighbors: {k}}}\neigensolver: {{n_components: {k - 1}}}")

    def test_only_multigrid_runs_on_a_gpu(self, load):
        message = refusal(load, "eigensolver: {device: gpu}")
        assert "method is auto" in message
        assert "set method to multigrid, or device to cpu" in message
        assert load("eigensolver: {device: gpu, method: multigrid}")

    def test_n_components_above_the_number_of_features_is_refused(self, load):
        message = refusal(load, "preprocess: {pca: 3}\neigensolver: {n_components: 4}")
        assert "eigensolver.n_components is 4" in message
        assert "preprocess.pca leaves 3" in message
        assert load("preprocess: {pca: 4}\neigensolver: {n_components: 4}")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "found an empty file"),
            (b"# no more\n", "found an empty file"),
            (b"[1, 2]", "found list"),
            (b"a: [", "not valid YAML: line 1, column 5: "),
            (b"[" * 2000, "levels deep"),
            (b"a: 1\nb: \xe9\n", "not valid YAML: byte 0xe9 in line 2 is not UTF-8 text; save it as UTF-8"),
            ("a: b".encode("utf-16"), "save it as UTF-8"),
            ("a: b".encode("utf-16-le"), "save it as UTF-8"),
            (b"a:\n\tb: 1\n", "line 2, column 1: .*; use spaces"),
            (b"weights: {reg: 2020-13-45}", "not valid YAML: month must be in"),
        ],
        ids=["empty", "comment", "list", "torn", "deep", "Latin-1", "UTF-16", "UTF-16 without mark", "tab", "date"],
    )
    def test_file_that_is_no_mapping(self, tmp_path, content, message):
        path = tmp_path / "c.yaml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=message) as caught:
            load_config(path)
        assert str(path) in str(caught.value)
        assert "unicode string" not in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("neighbors: {n_neighbors: 12}\nweights: {}\nneighbors: {}", "neighbors is given twice, in lines 3 and 5;"),
            ("output: {store: a.zarr}\n\noutput: {keep: 3}", "output is given twice, in lines 2 and 4;"),
            ("neighbors: {n_neighbors: 12, 'n_neighbors': 13}", "n_neighbors is given twice, in line 3;"),
            ("execution:\n  cluster:\n    workers: 2\n    workers: 2", "workers is given twice, in lines 5 and 6;"),
        ],
    )
    def test_repeated_key_is_refused(self, load, text, message):
        """YAML forbids repeated keys; PyYAML would use the last one and lose the rest of the first section."""
        assert message in refusal(load, text)

    def test_keys_from_a_merge_can_be_overridden(self, tmp_path):
        """`<<` is YAML's merge key; the merged part can itself use `<<`, and can be used before it is read."""
        path = tmp_path / "c.yaml"
        path.write_text(
            "input: &given {kind: synthetic, name: s_curve, n_points: 100}\n"
            "output: {store: x.zarr}\nsweep:\n  list:\n  - {input: &more {<<: *given, n_points: 200}}\n"
            "  - {input: {<<: *more, n_points: 300, noise: 0.1}}\n"
        )
        data, sweep = read_settings(path, ())
        assert data["input"]["n_points"] == 100
        assert [entry["input"]["n_points"] for entry in sweep.list] == [200, 300]

    def test_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(ConfigError, match="no such file"):
            load_config(tmp_path / "absent.yaml")
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(tmp_path)


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "section", "key", "value"),
        [
            ("neighbors.n_neighbors=10", "neighbors", "n_neighbors", 10),
            ("weights.reg=1e-4", "weights", "reg", 1e-4),
            ("input.n_points=1e6", "input", "n_points", 10**6),
            ("output.store=a=b.zarr", "output", "store", "a=b.zarr"),
            ("preprocess.pca=null", "preprocess", "pca", None),
            ("output.report=false", "output", "report", False),
            ("quality={sample: 5}", "quality", "sample", 5),
        ],
    )
    def test_sets_one_key(self, load, override, section, key, value):
        defaults, changed = resolved(load()), resolved(load("", override))
        assert changed[section][key] == value
        assert {**changed, section: {**changed[section], key: defaults[section][key]}} == defaults

    def test_deep_key_and_the_last_of_two(self, load):
        config = load("", "execution.cluster.workers=3", "execution.cluster.workers=4", "execution.cluster.kind=local")
        assert config.execution.cluster.workers == 4

    @pytest.mark.parametrize("override", ["neighbors", "=3", "a..b=3", ".a=3", ""])
    def test_needs_a_key_and_a_value(self, load, override):
        message = refusal(load, "", override)
        assert f"--set {override}: expected a.b=value" in message

    def test_value_must_be_yaml(self, load):
        assert "not valid YAML" in refusal(load, "", "neighbors.n_neighbors=[")

    def test_repeated_key_is_refused(self, load):
        message = refusal(load, "", "neighbors={k_min: 3, k_min: 4}")
        assert message.startswith("--set neighbors={k_min: 3, k_min: 4}: the value is not valid YAML")
        assert "k_min is given twice" in message

    def test_override_below_a_key_that_is_not_a_section(self, load):
        message = refusal(load, "", "input.name.first=3")
        for part in ("--set input.name.first=3", "name is 's_curve'", "not a section"):
            assert part in message

    def test_unknown_key_is_refused_as_in_the_file(self, load):
        assert "neighbors.k: unknown key" in refusal(load, "", "neighbors.k=3")

    def test_store_option_replaces_output_store(self, load, tmp_path):
        assert load("", store="y.zarr").output.store == "y.zarr"
        path = tmp_path / "no_output.yaml"
        for section in ("", "\noutput:  # no key yet"):
            path.write_text(MINIMAL.splitlines()[0] + section)
            assert load_config(path, store="z.zarr").output.store == "z.zarr"


class TestNumbers:
    @pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001", "1E-3"])
    def test_reg_accepts_every_notation_of_a_number(self, load, text):
        for config in (load(f"weights: {{reg: {text}}}"), load("", f"weights.reg={text}")):
            assert config.weights.reg == 0.001
            assert isinstance(config.weights.reg, float)

    @pytest.mark.parametrize(
        ("text", "key", "expected"),
        [
            ("output: {store: x, keep: true}", "output.keep", WHOLE),
            ("weights: {reg: true}", "weights.reg", "should be a number or 'auto'"),
            ("execution: {cluster: {workers: yes}}", "cluster.workers", f"{WHOLE} or 'auto'"),
            ("execution: {block_points: false}", "execution.block_points", f"{WHOLE} or 'auto'"),
            ("neighbors: {radius: no}", "neighbors.radius", "should be a number"),
            ("input: {kind: npy, path: x, columns: [0, true]}", "input.columns.1", WHOLE),
            ("input: {kind: npy, path: x, where: true}", "input.where", f"{WHOLE} or a number or text"),
            ("quality: {sample: '500'}", "quality.sample", WHOLE),
            ("neighbors: {reverse: '3'}", "neighbors.reverse", f"{WHOLE} or 'auto'"),
            ("weights: {reg: '0.5'}", "weights.reg", "should be a number or 'auto'"),
        ],
    )
    def test_booleans_and_text_are_not_numbers(self, load, text, key, expected):
        """output.keep: true would be read as 1, and all versions but one would be deleted."""
        message = refusal(load, text)
        assert f"{key}: {expected}" in message
        parsed = yaml_io.parse(text.replace("]", "").rstrip("}").rsplit(" ", 1)[1])
        assert message.endswith(
            "in quotes; remove the quotes" if isinstance(parsed, str) else f"; found {fields.shown(parsed)}"
        )
        assert message.count("\n  - ") == 1
        key, value = text.rstrip("}").replace("{", "").rsplit(": ", 1)
        if key.count(": ") == 1 and "," not in key:
            assert f"{key.replace(': ', '.')}: {expected}" in refusal(load, "", f"{key.replace(': ', '.')}={value}")

    def test_integers_and_floats_are_accepted_in_other_notations(self, load):
        """Integers for float fields, integral floats for integer fields, and numbers that YAML 1.1 reads as text."""
        config = load("quality: {sample: 5e2}\nneighbors: {n_neighbors: 12.0}\nweights: {reg: 1, t: .5e3}")
        assert (config.quality.sample, config.neighbors.n_neighbors, config.weights.t) == (500, 12, 500.0)
        assert isinstance(config.weights.reg, float)
        for where in ("'7'", "'1e3'", "seven"):  # a label may be text that looks like a number
            config = load(f"input: {{kind: csv, path: x, where: {where}}}")
            assert config.input.where == where.strip("'")
            assert yaml_io.parse(to_yaml(resolved(config))) == resolved(config)

    def test_numpy_numbers_are_numbers(self):
        data = {"input": {"kind": "npy", "path": "x"}, "output": {"store": "y"}}
        data |= {"neighbors": {"n_neighbors": np.int64(7)}, "weights": {"reg": np.float32(0.5)}}
        config = check_config(data, "here")
        assert (config.neighbors.n_neighbors, config.weights.reg) == (7, 0.5)
        assert type(config.neighbors.n_neighbors) is int

    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("4GiB", 4 * 2**30),
            ("4 GiB", 4 * 2**30),
            ("4GB", 4 * 10**9),
            ("500MB", 5 * 10**8),
            ("1536.5KiB", 1573376),
            ("7000000", 7000000),
            ("7000000B", 7000000),
            ("2tib", 2 * 2**40),
            (7000000, 7000000),
            ("auto", "auto"),
        ],
    )
    def test_sizes_with_and_without_units(self, load, text, size):
        assert parse_size(text) == size
        assert load(f"eigensolver: {{max_memory: {text}}}").eigensolver.max_memory == size

    @pytest.mark.parametrize("text", ["4GX", "GiB", ".", "1.2.3GiB", "-4GiB", "", True, None, 1.5, [4], "4GiB!"])
    def test_invalid_sizes_are_refused(self, text):
        with pytest.raises(ValueError, match="expected a size"):
            parse_size(text)


def below(model):
    return {model}.union(*(below(subclass) for subclass in model.__subclasses__()))


@pytest.mark.parametrize("model", sorted(below(fields.Model), key=lambda model: model.__name__))
def test_no_number_field_accepts_true(model):
    for name, field in model.model_fields.items():
        with contextlib.suppress(ValidationError):
            value = TypeAdapter(Annotated[field.annotation, None, *field.metadata]).validate_python(True)
            assert value is True, f"{name}: use Int or Float of config/fields.py, which are strict"
