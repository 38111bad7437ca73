"""Pure: YAML as values that know their lines. Repeated keys, many documents and huge files are refused.

Not a full YAML reader: merge keys and objects of other languages have no place in a configuration.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from schemas.settings.expand import expand, has_reference
from schemas.settings.problems import Path, Problem

TEXT_CHARS_MAX = 1_048_576
NODES_MAX = 100_000
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A value and the line where it stands."""

    value: Any
    """A scalar, or a dict or list of `Located`."""
    line: int
    """From 1."""
    written: str | None = None
    """The text before expansion, when the environment had a part in it."""
    is_sound: bool = True
    """It could be read; what could not has a problem of its own."""

    @property
    def plain(self) -> Any:
        """The value without its lines."""
        if isinstance(self.value, dict):
            return {key: item.plain for key, item in self.value.items()}
        return [item.plain for item in self.value] if isinstance(self.value, list) else self.value

    @property
    def is_whole(self) -> bool:
        """Whether it and all below it could be read."""
        below = self.value.values() if isinstance(self.value, dict) else self.value
        return self.is_sound and (not isinstance(below, Iterable) or all(_is_whole(item) for item in below))

    def lines(self, path: Path = ()) -> Iterator[tuple[Path, int]]:
        """Yield the line of each value below this one."""
        yield path, self.line
        if isinstance(self.value, dict):
            for key, item in self.value.items():
                yield from item.lines((*path, key))
        elif isinstance(self.value, list):
            for index, item in enumerate(self.value):
                yield from item.lines((*path, index))


def _is_whole(item: object) -> bool:
    return not isinstance(item, Located) or item.is_whole


class _Reader:
    """One reading of one text: it collects the problems it meets."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self.name = name
        self.environ = environ
        self.problems: list[Problem] = []
        self.num_nodes = 0
        self.yaml = YAML(typ="safe", pure=True)

    def refuse(self, line: int | None, path: Path, message: str) -> None:
        place = self.name if line is None else f"{self.name}:{line}"
        self.problems.append(Problem(place=place, path=path, message=message))

    def located(self, node: Node, path: Path) -> Located:
        self.num_nodes += 1
        line = node.start_mark.line + 1
        if self.num_nodes > NODES_MAX:
            return Located(value=None, line=line)
        if isinstance(node, MappingNode):
            return Located(value=self._mapping(node, path), line=line)
        if isinstance(node, SequenceNode):
            items = [self.located(item, (*path, index)) for index, item in enumerate(node.value)]
            return Located(value=items, line=line)
        assert isinstance(node, ScalarNode), type(node)
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Located]:
        found: dict[str, Located] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            if key is None or key == "<<":
                self.refuse(line, path, "expected a plain word as key, got another: write the keys out")
            elif key in found:
                self.refuse(
                    line, (*path, key), f"expected the key once, got it in line {found[key].line} already"
                )
            else:
                value = self.located(value_node, (*path, key))
                found[key] = replace(value, line=line)
        return found

    def _scalar(self, node: ScalarNode, path: Path) -> Located:
        line, text = node.start_mark.line + 1, node.value
        if has_reference(text):
            try:
                return Located(value=expand(text, self.environ), line=line, written=text)
            except ValueError as error:
                self.refuse(line, path, str(error))
                return Located(value=None, line=line, is_sound=False)
        if node.tag not in _PLAIN_TAGS:
            return Located(value=text, line=line)
        try:
            return Located(value=self.yaml.constructor.construct_object(node, deep=True), line=line)
        except ValueError:
            return Located(value=text, line=line)


def read_yaml(text: str, name: str, environ: Mapping[str, str]) -> tuple[Located | None, list[Problem]]:
    """Read one document; None when it is empty or unreadable. `name` stands before each line number."""
    reader = _Reader(name, environ)
    if len(text) > TEXT_CHARS_MAX:
        reader.refuse(None, (), f"expected at most {TEXT_CHARS_MAX} characters, got {len(text)}: shorten it")
        return None, reader.problems
    try:
        node = reader.yaml.compose(text)
        root = None if node is None else reader.located(node, ())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reader.refuse(mark.line + 1 if mark else None, (), f"expected YAML, got a mistake: {error.problem}")
        return None, reader.problems
    except YAMLError as error:
        reader.refuse(None, (), f"expected YAML, got a mistake: {str(error).splitlines()[0]}")
        return None, reader.problems
    except RecursionError:
        reader.refuse(None, (), "expected a few levels, got too many to read: flatten it")
        return None, reader.problems
    if reader.num_nodes > NODES_MAX:
        reader.refuse(None, (), f"expected at most {NODES_MAX} values, got more: shorten it")
    return root, reader.problems


def value_of_text(text: str) -> Any:
    """Read a text from the environment or the command line as YAML; itself when it is none."""
    root, problems = read_yaml(text.replace("${", "$${"), "", {})
    return text if problems or root is None else root.plain
