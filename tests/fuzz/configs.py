"""Mutated configs: `lle validate` and `lle plan` end at once with 0 or 2, and what they accept can be written back."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lle.config.load import json_schema, load_config, resolved
from lle.config.models import Config
from lle.config.yaml_io import to_yaml
from tests.fuzz.campaign import BrokenRule, Limits
from tests.fuzz.commands import call, write
from tests.fuzz.inputs import write_inputs
from tests.fuzz.mutate import choose, mutated_bytes, mutated_tree, random_value
from tests.support.paths import REPOSITORY

LIMITS = Limits(seconds=5, n_bytes=200 * 2**20)
SHIPPED = sorted(REPOSITORY.glob("configs/*.yaml"))


def prepare(shared: Path) -> None:
    """One small input of every kind."""
    write_inputs(shared)


def run(rng: np.random.Generator, shared: Path, own: Path) -> str:
    """Validate or plan one config; sometimes with an override."""
    path = write(own / "config.yaml", config_text(rng, shared, own))
    command = choose(rng, ["validate", "validate", "plan"])
    override = override_of(rng)
    ended = call(command, path, *(["--set", override] if override else []), codes=(0, 1, 2))
    if ended.code == 1 and ended.answer["error"] != "NotEnoughMemory":
        raise BrokenRule(f"a retry cures no config, but the exit code is 1: {ended.answer}\n{path.read_text()[:3000]}")
    if ended.code == 0 and command == "validate":
        _check_round_trip(load_config(path, (override,) if override else ()), own)
    return f"{command} {ended.outcome}"


def config_text(rng: np.random.Generator, shared: Path, own: Path) -> bytes:
    """A config after mutations of its values, of its text, or of both."""
    data = base_config(rng, shared, own)
    for _ in range(int(rng.integers(4))):
        data = mutated_tree(rng, data) if rng.random() < 0.6 else with_key_of_schema(rng, data)
    text = yaml.safe_dump(data, allow_unicode=True, default_flow_style=choose(rng, [None, True, False]))
    encoded = text.encode("utf-8", "surrogatepass")
    return mutated_bytes(rng, encoded) if rng.random() < 0.3 else encoded


def base_config(rng: np.random.Generator, shared: Path, own: Path) -> dict[str, Any]:
    """A config of the folder configs/, or a small one whose input exists."""
    if rng.random() < 0.3:
        data: dict[str, Any] = yaml.safe_load(choose(rng, SHIPPED).read_text())
    else:
        inputs = yaml.safe_load((shared / "inputs.yaml").read_text())
        data = {
            "input": choose(rng, inputs),
            "neighbors": {"n_neighbors": 5},
            "execution": {"cluster": {"kind": "serial"}},
        }
    data["output"] = {**data.get("output", {}), "store": str(own / "run.zarr")}
    return data


def with_key_of_schema(rng: np.random.Generator, data: Any) -> Any:
    """Set a key that exists to an allowed value, one at its limits, or a hostile one."""
    schema = json_schema()
    section = choose(rng, sorted(schema["properties"]))
    entry = _resolved(schema, schema["properties"][section])
    if not isinstance(data, dict) or "properties" not in entry:
        return mutated_tree(rng, data)
    key = choose(rng, sorted(entry["properties"]))
    target = data.setdefault(section, {})
    if isinstance(target, dict):
        target[key] = _value_for(rng, schema, entry["properties"][key])
    return data


def _resolved(schema: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in entry:
        entry = schema["$defs"][entry["$ref"].rsplit("/", 1)[-1]]
    return entry


def _value_for(rng: np.random.Generator, schema: dict[str, Any], entry: dict[str, Any]) -> Any:
    entry = _resolved(schema, entry)
    if "anyOf" in entry or "oneOf" in entry:
        return _value_for(rng, schema, choose(rng, entry.get("anyOf") or entry["oneOf"]))
    if "enum" in entry:
        return choose(rng, entry["enum"])
    if "const" in entry:
        return entry["const"]
    if entry.get("type") == "object":
        return {
            key: _value_for(rng, schema, part)
            for key, part in entry.get("properties", {}).items()
            if rng.random() < 0.5
        }
    if entry.get("type") in ("integer", "number") and rng.random() < 0.8:
        least = entry.get("minimum", entry.get("exclusiveMinimum", 0))
        size = float(rng.choice([0, 1, 2, 3, 10, 100, 1e3, 1e5, 1e7, 1e9, 1e12, 1e15]))
        return int(least + size) if entry["type"] == "integer" else least + size * rng.random()
    return entry.get("type") == "boolean" if rng.random() < 0.2 else random_value(rng)


def override_of(rng: np.random.Generator) -> str:
    """Sometimes a hostile KEY=VALUE for --set, else an empty text."""
    if rng.random() < 0.85:
        return ""
    keys = [
        "input.path",
        "output.store",
        "neighbors.n_neighbors",
        "a.b.c",
        "",
        "execution.cluster.memory",
        "input",
        "..",
        "sweep",
    ]
    return f"{choose(rng, keys)}={random_value(rng)}".replace("\0", "")


def _check_round_trip(config: Config, own: Path) -> None:
    again = load_config(write(own / "again.yaml", to_yaml(resolved(config))))
    if not _equal(resolved(config), resolved(again)):
        raise BrokenRule(f"the resolved config reads back differently:\n{resolved(config)}\n{resolved(again)}")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)
