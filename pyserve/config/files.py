"""Reads the YAML of a mesh; every refusal names the file, the line and the column.

pydantic says what does not fit, and where in the values; the marks of the YAML parser say where
that is in the text.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pyserve.config.schema import ServeDeploySchema
from pyserve.errors import NotYetSupported, UsageError

# A file has a handful of applications. Larger ones are data, or an attack on the parser.
_TEXT_CHARACTERS_MAX = 4 << 20
# Beyond it nobody reads; the rest is counted.
_MISTAKES_MAX = 20

# Kinds of YAML that JSON, and so the wire, does not have; dates are the ones that come by mistake.
_NOT_JSON = {
    f"tag:yaml.org,2002:{kind}" for kind in ("timestamp", "binary", "set", "omap", "pairs")
}


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
        self._root = _parse(name, text)
        values = _values(self._root, name)
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
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is no text in UTF-8 (byte {error.start})") from error
        return cls(str(path), text)

    def place(self, way: Sequence[int | str]) -> str:
        """Return ``file:line:column`` of what the way leads to, or of the last part before it."""
        node = mark_of = self._root
        for step in way:
            found = _child(node, step)
            if found is None:
                break
            mark_of, node = found
        if mark_of is None or not self._has_places:
            return self.name
        return f"{self.name}:{mark_of.start_mark.line + 1}:{mark_of.start_mark.column + 1}"

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
    """Return what YAML says, of which JSON is a part; {} for none.

    Raises:
        UsageError: It is no YAML, or says what JSON cannot hold; with the place.
    """
    return _values(_parse(name, text), name)


def _parse(name: str, text: str) -> yaml.Node | None:
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise UsageError(f"{name} has {len(text)} characters; at most {_TEXT_CHARACTERS_MAX}")
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        says = ", ".join(filter(None, (error.context, error.problem)))
        raise UsageError(f"{where}: this is no YAML: {says}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{name}: this is no YAML: {error}") from error


def _values(node: yaml.Node | None, name: str) -> object:
    """Return what the nodes say; as ``safe_load``, but keys that stand twice are refused."""
    if node is None:
        return {}
    _check_nodes(node, name, seen=set())
    loader = yaml.SafeLoader("")
    try:
        values = loader.construct_document(node)
        json.dumps(values, allow_nan=False)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or node.start_mark
        raise UsageError(
            f"{name}:{mark.line + 1}:{mark.column + 1}: this is no YAML: {error.problem}"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: it says what JSON cannot hold: {error}") from error
    finally:
        loader.dispose()
    return values


def _check_nodes(node: yaml.Node, name: str, *, seen: set[int]) -> None:
    if id(node) in seen:  # An alias; it was looked at where it stands.
        return
    seen.add(id(node))
    if node.tag in _NOT_JSON:
        mark = node.start_mark
        kind = node.tag.rpartition(":")[2]
        raise UsageError(
            f"{name}:{mark.line + 1}:{mark.column + 1}: this is a {kind}, which JSON has not; "
            f"write it in quotes for a text"
        )
    if isinstance(node, yaml.MappingNode):
        keys: set[Hashable] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    mark = key.start_mark
                    raise UsageError(
                        f"{name}:{mark.line + 1}:{mark.column + 1}: {key.value!r} stands twice in "
                        f"this mapping; keep one"
                    )
                keys.add(key.value)
            _check_nodes(value, name, seen=seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_nodes(value, name, seen=seen)


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
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=False)


def dump_all(documents: Iterable[Any]) -> str:
    """Return values as documents of one file; texts of several lines stay readable."""
    return yaml.dump_all(
        documents, Dumper=_Readable, sort_keys=False, allow_unicode=True, default_flow_style=False
    )


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as they are, and each value where it is used."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _readable_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Readable.add_representer(str, _readable_text)
