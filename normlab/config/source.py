"""YAML text to plain data, keeping the place of every key and value, with every fault that the text has.

Refused, each with its place: duplicate keys, keys that are not text, merge keys, tags, aliases that contain
themselves, aliases that blow up. Plain anchors and aliases work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from normlab.config.errors import ConfigError
from normlab.config.scalars import check_text, read_scalar, show

Keys = tuple[str | int, ...]

MAX_BYTES = 4_000_000
MAX_NODES = 250_000
MAX_NESTING = 20


class Place(NamedTuple):
    """Where something stands: `file:line:col`, or the override that set it. Places sort in reading order."""

    line: int
    column: int
    text: str


@dataclass
class Source:
    """Plain data, the places of its keys and values by path, and the problems met so far."""

    file: str
    data: dict[str, Any]
    keys: dict[Keys, Place] = field(default_factory=dict)
    values: dict[Keys, Place] = field(default_factory=dict)
    problems: list[tuple[Place, str]] = field(default_factory=list)

    def place(self, path: Keys, key: bool = False) -> Place:
        """Place of the value (or key) at `path`; of the nearest thing around it if it is not written."""
        while path:
            for places in (self.keys, self.values) if key else (self.values, self.keys):
                if path in places:
                    return places[path]
            path = path[:-1]
        return self.values.get((), Place(1, 1, f"{self.file}:1:1"))

    def written(self, path: Keys) -> bool:
        """Was this path given by the file or by an override?"""
        return path in self.values

    def report(self, place: Place, text: str) -> None:
        """Note a problem once."""
        if (place, text) not in self.problems:
            self.problems.append((place, text))

    def raise_problems(self) -> None:
        """Raise all problems in reading order, if there are any."""
        if self.problems:
            raise ConfigError(f"{place.text}: {text}" for place, text in sorted(self.problems, key=lambda p: p[0][:2]))


class _Composer(yaml.BaseLoader):
    """PyYAML's reader up to nodes; a node's tag says only whether its scalar was plain, quoted or explicitly tagged."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return "plain" if implicit[0] else "text"
        return "collection"


def read_source(path: Path) -> Source:
    """Read a YAML file whose root is a mapping; ConfigError for what makes it unreadable as a whole."""
    if path.is_dir():
        raise ConfigError([f"{path}: is a directory, expected a YAML file"])
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError([f"{path}: no such file"]) from None
    except (OSError, ValueError) as error:
        raise ConfigError([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([f"{path}: {len(raw):,} bytes, more than the {MAX_BYTES:,} that a study may have"])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig", errors="replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise ConfigError([f"{path}:{line}:{column}: not UTF-8: save the file as UTF-8"]) from None
    return parse(text, str(path))


def parse(text: str, file: str) -> Source:
    """Turn YAML text into a Source whose root is a mapping; ConfigError where the syntax is wrong."""
    try:
        node = _Composer(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise ConfigError([f"{where}: {_syntax(error)}"]) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        where = f"{file}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise ConfigError([f"{where}: a control character (code {ord(text[error.position])}) in the text"]) from None
    except RecursionError:
        raise ConfigError([f"{file}: nested too deeply, more than {MAX_NESTING} levels are not read"]) from None
    if node is None:
        raise ConfigError([f"{file}:1:1: the file is empty, expected at least 'question: ...'"])
    source = Source(file, {})
    data = _Reader(source).value(node, ())
    if not isinstance(data, dict):
        source.raise_problems()
        place = source.place(())
        raise ConfigError([f"{place.text}: expected keys with values (question: ...), got {describe(data)}"])
    source.data = data
    return source


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = (error.problem or "not YAML").replace("\n", " ")
    if "'\\t'" in problem:
        return "a tab where YAML allows only spaces: indent with spaces"
    if "but found another document" in problem:
        return "a second document ('---'), expected one study a file"
    context = f" {error.context}" if error.context else ""
    return f"not YAML: {problem}{context}"


class _Reader:
    """Nodes to data; fills the source's places and problems."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.open: list[yaml.Node] = []
        self.nodes = 0

    def value(self, node: yaml.Node, path: Keys) -> Any:
        place = self.at(node)
        self.source.values[path] = place
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise ConfigError([f"{place.text}: more than {MAX_NODES:,} values, aliases expanded"])
        if any(node is other for other in self.open):
            raise ConfigError([f"{place.text}: {dotted(path)}: an alias that contains itself"])
        if len(self.open) > MAX_NESTING:
            raise ConfigError([f"{place.text}: nested too deeply, more than {MAX_NESTING} levels are not read"])
        if node.tag not in ("plain", "text", "collection", "tag:yaml.org,2002:str"):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self.source.report(place, f"{dotted(path)}: the tag {tag} is not read here: remove it")
            return Unread()
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        self.open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            return self.mapping(node, path)
        finally:
            self.open.pop()

    def scalar(self, node: yaml.ScalarNode, path: Keys) -> Any:
        try:
            return read_scalar(node.value) if node.tag == "plain" else check_text(node.value)
        except ValueError as error:
            self.source.report(self.at(node), f"{dotted(path)}: {error}")
            return Unread()

    def mapping(self, node: yaml.Node, path: Keys) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self.at(key_node)
            key = self.key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            if key in data:
                first = self.source.keys[here].line
                self.source.report(place, f"{dotted(here)}: given twice, on line {first} and on line {place.line}")
                continue
            self.source.keys[here] = place
            data[key] = self.value(value_node, here)
        return data

    def key(self, node: yaml.Node, path: Keys) -> str | None:
        place = self.at(node)
        if not isinstance(node, yaml.ScalarNode):
            self.source.report(place, f"{dotted(path)}: a list or mapping as a key, expected text")
            return None
        if node.tag == "plain" and node.value == "<<":
            self.source.report(place, f"{dotted(path)}: merge keys (<<) are not part of YAML 1.2: write the keys out")
            return None
        try:
            key = read_scalar(node.value) if node.tag == "plain" else check_text(node.value)
        except ValueError as error:
            self.source.report(place, f"{dotted(path)}: {error}")
            return None
        if not isinstance(key, str):
            self.source.report(place, f"{dotted(path)}: {describe(key)} as a key, expected text: put it in quotes")
            return None
        return key

    def at(self, node: yaml.Node) -> Place:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        return Place(line, column, f"{self.source.file}:{line}:{column}")


class Unread:
    """Stands for a value whose fault has been reported already."""


def dotted(path: Sequence[str | int]) -> str:
    """The name of a path in messages; `base` is left out, since one dotted name serves everywhere."""
    names = [str(part) for part in path if isinstance(part, str)]
    return ".".join(names[1:] if len(names) > 1 and names[0] == "base" else names) or "the file"


def describe(value: Any) -> str:
    """A value as messages name it: `text 'abc'`, `the number 3`, `nothing (null)`, `a list`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return show(value)
    if isinstance(value, (int, float)):
        return f"the number {show(value)}"
    if isinstance(value, str):
        return f"text '{value if len(value) <= 60 else value[:57] + '...'}'"
    return "a list" if isinstance(value, (list, tuple)) else "a mapping"
