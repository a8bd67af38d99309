"""Change values in a YAML text and keep everything else: comments, order, blank lines and quotes."""

import copy
from collections.abc import Mapping, Sequence

import yaml

from ..core.errors import ConfigError
from .sweep import apply_value
from .yaml_io import in_flow_style, parse, to_yaml


class NotEdited(Exception):
    """The text cannot be changed in place, for instance because a value is an alias."""


def changed(data: dict[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """The settings after the changes (dotted key to value), which are not modified. Raises ConfigError."""
    target = copy.deepcopy(data)
    for key, value in changes.items():
        apply_value(target, key, value, key)
    return target


def edited(text: str, changes: Mapping[str, object]) -> str:
    """The text of a mapping with these values (dotted key to value). Raises NotEdited, and ConfigError as `changed`.

    >>> print(edited("neighbors: # of each row\\n  n_neighbors: 12  # more is smoother\\n", {
    ...     "neighbors.n_neighbors": 20, "neighbors.seed": 3, "method": "ltsa"}), end="")
    neighbors: # of each row
      seed: 3
      n_neighbors: 20  # more is smoother
    method: ltsa
    """
    target = changed(parse(text), changes)
    try:
        for key, value in changes.items():
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            assert isinstance(root, yaml.MappingNode)
            text = _with_value(text, root, key.split("."), value)
        is_target = parse(text) == target
    except (yaml.YAMLError, ValueError, ConfigError):
        is_target = False
    if not is_target:
        raise NotEdited
    return text


def _with_value(
    text: str, mapping: yaml.MappingNode, path: Sequence[str], value: object, section: yaml.Node | None = None
) -> str:
    """The text with `value` at the path below a mapping in it; `section` is the key of the mapping."""
    for key, node in mapping.value:
        if key.value != path[0]:
            continue
        if len(path) > 1 and isinstance(node, yaml.MappingNode):
            return _with_value(text, node, path[1:], value, key)
        start = node.start_mark.index
        end = start + len(text[start : _end(node)].rstrip())  # of a block of text the line after it begins there
        is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
        indent = "  " if is_block else " " if start == end else ""  # below its key, or beside a key without a value
        return f"{text[:start]}{indent}{in_flow_style(_nested(path[1:], value))}{text[end:]}"
    return _with_new_key(text, mapping, section, {path[0]: _nested(path[1:], value)})


def _with_new_key(text: str, mapping: yaml.MappingNode, section: yaml.Node | None, entry: dict[str, object]) -> str:
    """The text with one more entry in a mapping.

    A section gets it as its first entry, so that the comments below stay with their keys; the file as its last.
    """
    newline, flow = "\r\n" if "\r\n" in text else "\n", in_flow_style(entry)[1:-1]
    if mapping.flow_style:
        at = mapping.start_mark.index + 1
        return f"{text[:at]}{flow}{', ' if mapping.value else ''}{text[at:]}"
    if section is None:
        end = "" if text.endswith("\n") else newline
        return f"{text}{end}{to_yaml(entry).replace(chr(10), newline)}"
    at = text.index("\n", section.end_mark.index) + 1
    return f"{text[:at]}{' ' * mapping.start_mark.column}{flow}{newline}{text[at:]}"


def _end(node: yaml.Node) -> int:
    """Where the text of a node ends. A block collection ends with its last entry, not with the comments after it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _nested(path: Sequence[str], value: object) -> object:
    """The value below the keys of a path.

    >>> _nested(["a", "b"], 1)
    {'a': {'b': 1}}
    """
    for key in reversed(path):
        value = {key: value}
    return value
