"""YAML in and out: read safely, a key given twice refused, and what is no YAML said in words."""

from pathlib import Path
from typing import Any

import yaml

from pipeline.core.credentials import HIDDEN, find_secret
from pipeline.core.errors import ConfigError

MERGE = "tag:yaml.org,2002:merge"
DEEPEST = 50  # levels of brackets; a config has five


class GivenTwice(yaml.YAMLError):
    """A mapping that has a key twice: YAML forbids it, and PyYAML would keep the last value without a word."""


class _Loader(yaml.SafeLoader):
    """The safe loader; a key given twice in a mapping is an error."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"more than {DEEPEST} levels deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Looked at here, since keys that `<<` merges in come later, and those may be overridden."""
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            name, line = (key.tag, key.value), key.start_mark.line + 1
            if name in first:
                where = f"in line {line}" if first[name] == line else f"in lines {first[name]} and {line}"
                raise GivenTwice(f"{key.value} is given twice, {where}; keep one of them")
            first[name] = line
        return node


def parse(text: str) -> Any:
    """What a YAML text says. Raises yaml.YAMLError, also for keys given twice, and ValueError for impossible dates."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ConfigError that says what it is instead."""
    try:
        data = parse(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config {path}: no such file (working directory {Path.cwd()})") from None
    except OSError as error:
        raise ConfigError(f"config {path}: cannot be read: {error.strerror}") from None
    except GivenTwice as error:
        raise ConfigError(f"config {path}: {_without_secrets(str(error))}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"config {path}: not valid YAML: {_without_secrets(_said(error))}") from None
    if data is None:
        raise ConfigError(f"config {path}: the file is empty; expected a mapping with input and output")
    if not isinstance(data, dict):
        raise ConfigError(f"config {path}: expected a mapping with input and output, found {type(data).__name__}")
    return data


def parse_value(text: str, where: str) -> Any:
    """The value of `key=value` on a command line. Raises ConfigError; `where` is what was typed, fit to be shown."""
    try:
        return parse(text)
    except GivenTwice as error:
        raise ConfigError(f"{where}: {_without_secrets(str(error))}") from None
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"{where}: the value is not valid YAML; quote it") from None


def to_yaml(data: dict[str, Any]) -> str:
    """Plain data as YAML text in the order given."""
    return yaml.safe_dump(data, sort_keys=False)


def _without_secrets(said: str) -> str:
    return said if find_secret(said) is None else f"{HIDDEN} (the place holds what looks like a secret)"


def _said(error: Exception) -> str:
    """What is wrong and where, and the cure of the mistakes that editors make."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        return f"byte {error.object[error.start]:#04x} in line {line} is not UTF-8 text; save it as UTF-8"
    if isinstance(error, yaml.reader.ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character)
        cure = "save it as UTF-8" if code == 0 else "take it out"  # UTF-16 without its mark is full of zeros
        return f"character U+{code:04X} at position {error.position} may not stand in YAML; {cure}"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    mark = error.problem_mark
    said = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    said += f" ({error.context})" if error.context else ""
    said += "; use spaces, YAML does not indent with tabs" if "'\\t'" in (error.problem or "") else ""
    return "\n".join([said, *filter(None, [mark.get_snippet(indent=2)])])
