"""Read and check a config: `load_config` reports every mistake in a ConfigError with the key, the value found and the
allowed values."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..core.credentials import HIDDEN, find_secret, secrets_in
from ..core.errors import ConfigError
from .allowed_places import check_places
from .inputs import Input
from .messages import describe
from .models import Config
from .sweep import Sweep, apply_value
from .yaml_io import parse_value, read_mapping


class SweptConfig(Config):
    """A config with an optional section `sweep`: one run, or one for each experiment (`lle sweep`)."""

    sweep: Sweep | None = None


def load_config(path: str | Path, overrides: tuple[str, ...] = (), store: str | None = None) -> Config:
    """Read a YAML file, apply `a.b=value` overrides, and check everything.

    Raises ConfigError that lists every wrong key with the value found and the allowed values.
    """
    data, sweep_section = read_settings(Path(path), overrides)
    if sweep_section is not None:
        raise ConfigError(f"config {path}: has a section sweep, which means many runs; use `lle sweep {path}`")
    if store is not None:
        apply_value(data, "output.store", store, f"config {path}")
    return check_config(data, f"config {path}")


def read_settings(path: Path, overrides: tuple[str, ...]) -> tuple[dict[str, object], Sweep | None]:
    """The unchecked settings of a YAML file and the overrides, and its sweep. Raises ConfigError."""
    data = read_mapping(path)
    for override in overrides:
        _apply_override(data, override)
    sweep = data.pop("sweep", None)
    if sweep is None:
        return data, None
    try:
        return data, Sweep.model_validate(sweep)
    except ValidationError as error:
        lines = [f"  - {line}" for line in describe(error, Sweep, "sweep.")]
        raise ConfigError(f"config {path}:\n" + "\n".join(lines)) from None


def check_config(data: dict[str, object], where: str) -> Config:
    """The settings as a Config. Raises ConfigError that lists every mistake; `where` names the file."""
    _refuse_secrets(data, where)
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}:\n" + "\n".join(f"  - {line}" for line in describe(error, Config))) from None
    check_places(config)
    return config


def parse_input(data: dict[str, object], settings: tuple[str, ...]) -> Input:
    """A separate input section, from plain data and `key=value` settings. Raises ConfigError."""
    for setting in settings:
        _apply_override(data, setting, "--input")
    _refuse_secrets({"input": data}, "config --input")
    try:
        section = TypeAdapter[Input](Input).validate_python(data)
    except ValidationError as error:
        raise ConfigError("\n".join(f"--input: {line}" for line in describe(error, Config))) from None
    check_places(section, "input")
    return section


def resolved(config: Config) -> dict[str, Any]:
    """The config as plain JSON data with all defaults."""
    return config.model_dump(mode="json")


def json_schema() -> dict[str, object]:
    """JSON schema of the config file, as committed in configs/schema.json."""
    return SweptConfig.model_json_schema()


def sections_with_key(key: str) -> list[str]:
    """The sections that have a key of this name.

    >>> sections_with_key("scale")
    ['preprocess', 'embedding']
    """
    models = {name: field.annotation for name, field in Config.model_fields.items()}
    return [name for name, model in models.items() if key in getattr(model, "model_fields", {})]


def _refuse_secrets(data: dict[str, object], where: str) -> None:
    secrets = [f"  - {key}: {kind}" for key, kind in secrets_in(data)]
    if secrets:
        raise ConfigError(
            f"{where}: it holds what looks like a secret (not shown here):\n" + "\n".join(secrets) + "\n"
            "A config is copied into the store, the report and the logs. Remove the secret, take credentials from "
            "the environment (such as AWS_ACCESS_KEY_ID) or the identity of the machine, and replace the secret if "
            "others have seen it"
        )


def _apply_override(data: dict[str, object], override: str, option: str = "--set") -> None:
    key, value = parse_override(override, option)
    apply_value(data, key, value, f"{option} {override}" if find_secret(override) is None else f"{option} {HIDDEN}")


def parse_override(override: str, option: str = "--set") -> tuple[str, object]:
    """The dotted key and the value of `a.b=value`. Raises ConfigError."""
    key, equals, text = override.partition("=")
    override = override if find_secret(override) is None else HIDDEN
    if not equals or not all(key.split(".")):
        raise ConfigError(f"{option} {override}: expected a.b=value, for instance neighbors.n_neighbors=10")
    return key, parse_value(text, f"{option} {override}")
