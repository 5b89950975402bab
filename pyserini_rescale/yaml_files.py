"""YAML files that people write: read safely, a key given twice refused, every fault as one line.

Used by the regressions' specifications and the training configurations alike. Nothing here knows what a file means.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pyserini_rescale.errors import ConfigError, one_line

_MOST_PARTS = 100_000


def default_folder() -> Path:
    """Return the folder regressions/: inside an installed package, or beside the package in a checkout."""
    package = Path(__file__).parent
    for folder in (package / "regressions", package.parent / "regressions"):
        if (folder / "collections").is_dir():
            return folder
    raise ConfigError(
        f"no regressions lie in {package} or beside it: install the package again, or give --specs FOLDER"
    )


def fault_line(detail: Mapping[str, Any]) -> str:
    """Return one line for an error of pydantic's: where, what, and the value that was given."""
    where = ".".join(map(str, detail["loc"])) or "the file"
    given = "" if detail["type"] in ("missing", "extra_forbidden") else f" (given: {detail['input']!r:.60})"
    message = {"extra_forbidden": "unknown key", "missing": "missing"}.get(detail["type"], detail["msg"])
    return f"{where}: {message}{given}"


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where YAML's rule is broken and PyYAML keeps the last, half a surrogate
    pair, which is no character, and anchors that make a few lines more than can be printed, or endless."""

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is not None and _parts(node, {}) > _MOST_PARTS:
            raise yaml.constructor.ConstructorError(
                None, None, "anchors make it too large, or hold themselves", node.start_mark
            )
        return None if node is None else self.construct_document(node)

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        found = super().construct_scalar(node)
        if isinstance(found, str) and not found.isascii():
            try:
                found.encode("utf-8")
            except UnicodeEncodeError:
                raise yaml.constructor.ConstructorError(
                    None, None, "a text holds half a surrogate pair", node.start_mark
                ) from None
        return found

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not a plain word", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _parts(node: yaml.Node, known: dict[int, float]) -> float:
    """Return how many nodes there are with every alias written out; infinity for one that holds itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        pairs = (part for pair in node.value for part in pair) if isinstance(node, yaml.MappingNode) else ()
        inner = node.value if isinstance(node, yaml.SequenceNode) else pairs
        known[id(node)] = 1 + sum(_parts(part, known) for part in inner)
    return known[id(node)]


# YAML 1.1 takes 1e-4, which has no dot, for a word.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; ConfigError with the line where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(one_line(error)) from None
    return parse_yaml(text)


def read_table(path: Path) -> dict[str, Any]:
    """Return the table of keys that a YAML file holds; ConfigError, which names the file, where it holds none."""
    try:
        content = read_yaml(path)
    except ConfigError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a table of keys")
    return content


def parse_yaml(text: str) -> Any:
    """Return what a YAML text holds; ConfigError with the line where it is none."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506, a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{line}{error.problem}") from None
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(one_line(error)) from None


def to_yaml(value: Any) -> str:
    """Return plain data as YAML, in its own order."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
