"""Safe reading and writing of YAML. Duplicate keys are refused, and errors name the line and the cure."""

import re
from pathlib import Path
from typing import Any

import yaml

from ..core.credentials import HIDDEN, find_secret
from ..core.errors import ConfigError
from ..core.patterns import PACKED

DATA_SUFFIXES = {".parquet", ".csv", ".tsv", ".arrow", ".feather", ".npy", ".npz", ".zarr", ".h5ad", *PACKED}
MERGE = "tag:yaml.org,2002:merge"
MAX_BYTES = 2**22  # of a file: PyYAML takes 300 times the memory of a text of short values
MAX_DEPTH = 50  # maximum levels of nesting; a config has five
MAX_VALUES = 100_000  # in a file, each alias counted with the values that it refers to
MAX_BITS = 128  # of a whole number
FORBIDDEN = re.compile("[\0\ud800-\udfff]")  # no path and no message can hold them


class _Loader(yaml.SafeLoader):
    """The safe loader, with errors for duplicate keys, huge integers, forbidden characters, and too large data."""

    n_values = depth = deepest = 0

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.sizes: dict[int, tuple[int, int]] = {}  # values and levels of each node that is complete

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, or return the one of an alias. Both are counted with all values and levels in them."""
        node = super().compose_node(parent, index) if self.check_event(yaml.AliasEvent) else None
        if node is not None and id(node) not in self.sizes:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: an alias refers to a value around it; write it out")
        n_values, n_levels = (1, 1) if node is None else self.sizes[id(node)]
        n_before, deepest_before = self.n_values, self.deepest
        self.n_values, self.deepest = n_before + n_values, self.depth + n_levels
        if self.n_values > MAX_VALUES or self.deepest > MAX_DEPTH:
            raise yaml.YAMLError(
                f"more than {MAX_VALUES} values or {MAX_DEPTH} levels deep, each alias counted with the values that it "
                f"refers to; write fewer of them"
            )
        if node is None:
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            self.sizes[id(node)] = self.n_values - n_before, self.deepest - self.depth
        self.deepest = max(deepest_before, self.deepest)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Check before `<<` is merged: a key may override a merged one."""
        node = super().compose_mapping_node(anchor)
        first_line: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            name, line = (key.tag, key.value), key.start_mark.line + 1
            if name in first_line:
                where = f"in line {line}" if first_line[name] == line else f"in lines {first_line[name]} and {line}"
                raise yaml.YAMLError(f"{key.value} is given twice, {where}; keep one of them")
            first_line[name] = line
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if forbidden := FORBIDDEN.search(str(value)):
            character, line = f"U+{ord(forbidden[0]):04X}", node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: character {character} is not allowed in a value; remove it")
        return value

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value = super().construct_yaml_int(node)
        if value.bit_length() > MAX_BITS:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: a whole number of more than {MAX_BITS} bits; give a smaller one")
        return value


class _Dumper(yaml.SafeDumper):
    """The safe dumper, which quotes a text that `_Loader` would read as a number, and escapes line breaks."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = None if data.splitlines() == [data] else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


# YAML 1.2 reads 1e-3 as a number; PyYAML follows YAML 1.1, which expects 1.0e-3.
for kind in (_Loader, _Dumper):
    kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$"), list("-+.0123456789")
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Dumper.add_representer(str, _Dumper.represent_str)


def parse(text: str) -> Any:
    """The data of a YAML text. Raises yaml.YAMLError, also for duplicate keys, and ValueError for impossible dates."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise yaml.YAMLError(f"a value does not have the form of its tag (!!...): {error}") from None
    finally:
        loader.dispose()


def read_mapping(path: Path) -> dict[str, object]:
    """The mapping in a YAML file. Raises ConfigError if the file cannot be read or holds anything else."""
    if path.suffix.lower() in DATA_SUFFIXES and path.exists():
        raise ConfigError(f"config {path}: expected YAML, found data; write a config for them first: lle init {path}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:  # data, or a device
            raise ConfigError(
                f"config {path}: expected at most {MAX_BYTES // 2**20} MiB of YAML, found a larger file; check the path"
            )
        data = parse(content.decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config {path}: no such file (working directory {Path.cwd()})") from None
    except OSError as error:
        raise ConfigError(f"config {path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"config {path}: not valid YAML: {_without_secrets(_explanation(error))}") from None
    if not isinstance(data, dict):
        found = "an empty file" if data is None else type(data).__name__
        raise ConfigError(f"config {path}: expected a mapping with input and output, found {found}")
    return data


def parse_value(text: str, where: str) -> object:
    """The value of `key=value` on a command line. Raises ConfigError; `where` is the option to show."""
    try:
        return parse(text)
    except (yaml.YAMLError, ValueError) as error:
        problem = _without_secrets(_explanation(error).partition("\n")[0])  # the other lines repeat the value
        raise ConfigError(f"{where}: the value is not valid YAML; quote it if it is text: {problem}") from None


def to_yaml(data: dict[str, object]) -> str:
    """Plain data as YAML text in the order given."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False)


def in_flow_style(value: object) -> str:
    """Plain data as one line of YAML that may stand within braces.

    >>> print(in_flow_style("a, b"), in_flow_style({"k": [1, "yes"]}), in_flow_style("two\\nlines"))
    'a, b' {k: [1, 'yes']} "two\\nlines"
    """
    dumped = yaml.dump(
        [value], Dumper=_Dumper, default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=True
    )
    return str(dumped).strip()[1:-1]


def _without_secrets(text: str) -> str:
    return text if find_secret(text) is None else f"{HIDDEN} (the text holds what looks like a secret)"


def _explanation(error: Exception) -> str:
    """What is wrong, where, and the cure for common mistakes of editors."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        return f"byte {error.object[error.start]:#04x} in line {line} is not UTF-8 text; save it as UTF-8"
    if isinstance(error, yaml.reader.ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character)
        cure = "save it as UTF-8" if code == 0 else "remove it"  # UTF-16 without a byte order mark is full of zeros
        return f"character U+{code:04X} at position {error.position} is not allowed in YAML; {cure}"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    position = error.problem_mark
    text = f"line {position.line + 1}, column {position.column + 1}: {error.problem}"
    text += f" ({error.context})" if error.context else ""
    text += "; use spaces, YAML does not indent with tabs" if "'\\t'" in (error.problem or "") else ""
    return "\n".join([text, *filter(None, [position.get_snippet(indent=2)])])
