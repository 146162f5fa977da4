"""Reads the YAML of a mesh; every refusal names the file, the line and the column.

pydantic says what does not fit, and where in the values; the marks of the YAML parser say where
that is in the text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pyserve.config import texts
from pyserve.config.schema import ServeDeploySchema
from pyserve.errors import NotYetSupported, UsageError

# A file has a handful of applications. Larger ones are data, or an attack on the parser.
_TEXT_CHARACTERS_MAX = 4 << 20
# Beyond it nobody reads; the rest is counted.
_MISTAKES_MAX = 20


class MeshFile:
    """A file that fits, and where in it everything stands.

    Args:
        name: For messages: its path.
        text: YAML, of which JSON is a part.
        has_places: Somebody has written the text, and can look at its lines.

    Attributes:
        values: What it says, as it was written.
        content: The same, checked.

    Raises:
        UsageError: It is no YAML, or says what it cannot; with every place.
    """

    def __init__(self, name: str, text: str, *, has_places: bool = True) -> None:
        self.name = name
        self._has_places = has_places
        self._text = text
        values, self._node = _read(name, text)
        if not isinstance(values, dict):
            raise UsageError(f"{self.place(())}: a mapping is expected; it begins: applications:")
        self.values: dict[str, Any] = values
        try:
            self.content = ServeDeploySchema.model_validate(values)
        except ValidationError as error:
            raise UsageError("\n".join(self._mistakes(error))) from error
        except NotYetSupported as error:
            raise NotYetSupported(f"{name}: {error}") from error

    @classmethod
    def read(cls, path: Path) -> MeshFile:
        """Read a file.

        Raises:
            UsageError: As above, or it cannot be read.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        return cls.of_bytes(str(path), content)

    @classmethod
    def of_bytes(cls, name: str, content: bytes) -> MeshFile:
        """Read what is in a file of that name, whatever this process's locale is.

        Raises:
            UsageError: As above, or it is no text.
        """
        try:
            return cls(name, content.decode())
        except UnicodeDecodeError as error:
            raise UsageError(f"{name} is no text in UTF-8 (byte {error.start})") from error

    def place(self, way: Sequence[int | str]) -> str:
        """Return ``file:line:column`` of what the way leads to, or of the last part before it."""
        node = mark_of = self._root if self._has_places else None
        for step in way:
            found = _child(node, step)
            if found is None:
                break
            mark_of, node = found
        if mark_of is None:
            return self.name
        return f"{self.name}:{mark_of.start_mark.line + 1}:{mark_of.start_mark.column + 1}"

    @functools.cached_property
    def _root(self) -> yaml.Node | None:
        return self._node or _nodes_of(self._text)

    def _mistakes(self, error: ValidationError) -> Iterator[str]:
        found = error.errors(include_url=False)
        for each in found[:_MISTAKES_MAX]:
            way = each["loc"]
            where = _readable(way)
            # An exception of a check comes with its own text.
            cause = each.get("ctx", {}).get("error")
            says = str(cause) if cause is not None else each["msg"]
            yield f"{self.place(way)}: {where + ': ' if where else ''}{says}"
        if len(found) > _MISTAKES_MAX:
            yield f"{self.name}: ... and {len(found) - _MISTAKES_MAX} mistakes more"


def read_values(name: str, text: str) -> object:
    """Return what JSON or YAML says; {} for none.

    Raises:
        UsageError: It is neither, or says what JSON cannot hold; with the place.
    """
    return _read(name, text)[0]


def _read(name: str, text: str) -> tuple[object, yaml.Node | None]:
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise UsageError(f"{name} has {len(text)} characters; at most {_TEXT_CHARACTERS_MAX}")
    try:
        values, node = texts.read(text)
    except texts.TextError as error:
        mark = error.mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        raise UsageError(f"{where}: {error}") from error
    return {} if values is None else values, node


def _nodes_of(text: str) -> yaml.Node | None:
    """Return the nodes of JSON, of which most texts are YAML; ``None``: this one is not."""
    try:
        return texts.compose(text)
    except texts.TextError:
        return None


def _child(node: yaml.Node | None, step: int | str) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the node whose place is told, and the one that goes on, of one step of a way."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(step):
                return key, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _readable(way: Sequence[int | str]) -> str:
    """Return ``applications[0].name``."""
    text = ""
    for step in way:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def dump(values: Any) -> str:
    """Return values as YAML in the order in which they come."""
    return yaml.dump(
        values,
        Dumper=texts.Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
    )


def dump_all(documents: Iterable[Any]) -> str:
    """Return values as documents of one file; texts of several lines stay readable."""
    return yaml.dump_all(
        documents, Dumper=_Readable, sort_keys=False, allow_unicode=True, default_flow_style=False
    )


class _Readable(texts.Dumper):
    """Writes texts of several lines as they are, and each value where it is used."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _readable_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _readable_text)
