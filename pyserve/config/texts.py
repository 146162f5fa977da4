"""Texts of JSON and YAML as values: JSON is read as JSON, YAML with the numbers of YAML 1.2.

PyYAML follows YAML 1.1, in which ``1e-05`` is a text, ``010`` is eight and ``1:30`` ninety, and
which does not include JSON. The size of the result is bounded too, since aliases can expand a small
text to a huge value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from typing import Any

import yaml

# What aliases may add to the text, in characters of keys and values. Files that share options by
# aliases need a few thousand.
ALIASED_CHARACTERS_MAX = 1 << 18

# Kinds of YAML that JSON, and so the wire, does not have; dates are the ones that come by mistake.
_NOT_JSON = {
    f"tag:yaml.org,2002:{kind}" for kind in ("timestamp", "binary", "set", "omap", "pairs")
}
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
# yaml.org/spec/1.2.2, 10.3.2.
_NUMBERS = (
    (_INT, re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z"), "-+0123456789"),
    (
        _FLOAT,
        re.compile(
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"
            r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
        ),
        "-+.0123456789",
    ),
)
_OTHER_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")


class TextError(ValueError):
    """A text is neither, or says what JSON cannot hold.

    Attributes:
        mark: where, as far as that is known.
    """

    def __init__(self, says: str, mark: yaml.Mark | None = None) -> None:
        super().__init__(says)
        self.mark = mark


class Loader(yaml.SafeLoader):
    """YAML 1.1 with the numbers of 1.2, and characters beyond U+FFFF as JSON writes them."""


class Dumper(yaml.SafeDumper):
    """Writes text that reads the same by YAML 1.1 and 1.2."""


def read(text: str) -> tuple[object, yaml.Node | None]:
    """Return what a text says, and its nodes if it is YAML.

    Raises:
        TextError: it cannot be read.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _read_json(text), None
        except json.JSONDecodeError:  # In YAML, mappings may be written with braces too.
            pass
    node = compose(text)
    return (None if node is None else _read_node(node)), node


def compose(text: str) -> yaml.Node | None:
    """Return the nodes of YAML; ``None``: the text has none.

    Raises:
        TextError: it is no YAML.
    """
    try:
        return yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        says = ", ".join(filter(None, (error.context, error.problem)))
        mark = error.problem_mark or error.context_mark
        raise TextError(f"this is no YAML: {says}", mark) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise TextError(f"this is no YAML: {error}") from error


def _read_json(text: str) -> object:
    try:
        value = json.loads(text, object_pairs_hook=_mapping, parse_constant=_refuse_constant)
        _check_json(value)
    except (json.JSONDecodeError, TextError):
        raise
    except (ValueError, RecursionError) as error:
        raise TextError(f"it says what JSON cannot hold: {error}") from error
    return value


def _read_node(node: yaml.Node) -> object:
    loader = Loader("")
    try:
        _check_node(node, {})
        value: object = loader.construct_document(node)
        _check_json(value)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or node.start_mark
        raise TextError(f"this is no YAML: {error.problem}", mark) from error
    except TextError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise TextError(f"it says what JSON cannot hold: {error}") from error
    finally:
        loader.dispose()
    return value


def _check_json(value: object) -> None:
    """Raise a ``ValueError`` for infinities, half characters and what JSON has not."""
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise TextError(f"{twice!r} stands twice in one mapping; keep one")
    return found


def _refuse_constant(name: str) -> object:
    raise TextError(f"{name} is no number of JSON")


def _check_node(node: yaml.Node, weights: dict[int, int | None]) -> tuple[int, int]:
    """Look through a node.

    Args:
        node: whose nodes are looked at once, wherever aliases name them.
        weights: of the nodes that were looked at; ``None``: one that holds the other.

    Returns:
        Its size by itself, and with all that its aliases name, in characters.
    """
    if id(node) in weights:
        weight = weights[id(node)]
        if weight is None:
            raise TextError("this alias names what it is part of", node.start_mark)
        return 0, weight
    weights[id(node)] = None
    if node.tag in _NOT_JSON:
        kind = node.tag.rpartition(":")[2]
        text = f"this is a {kind}, which JSON has not; write it in quotes for a text"
        raise TextError(text, node.start_mark)
    own = whole = 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
    for each in _children(node):
        more, more_whole = _check_node(each, weights)
        own, whole = own + more, whole + more_whole
        if whole - own > ALIASED_CHARACTERS_MAX:
            text = f"its aliases make more than {ALIASED_CHARACTERS_MAX} characters of it"
            raise TextError(text, node.start_mark)
    weights[id(node)] = whole
    return own, whole


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        keys: set[Hashable] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    text = f"{key.value!r} stands twice in this mapping; keep one"
                    raise TextError(text, key.start_mark)
                keys.add(key.value)
            yield key
            yield value


def _number_of(loader: Loader, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node))
    try:
        if node.tag == _INT:
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError as error:
        kind = node.tag.rpartition(":")[2]
        raise TextError(f"{text[:40]!r} is no {kind}: {error}", node.start_mark) from error


def _text_of(loader: Loader, node: yaml.ScalarNode) -> str:
    r"""Join the halves of characters that are written as in JSON, ``"\ud83d\ude00"``."""
    text = str(loader.construct_scalar(node))
    if _SURROGATES.search(text):
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise TextError("this text has half a character", node.start_mark) from error
    return text


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Escape the ends of lines that are ones in YAML 1.1 only, which PyYAML writes as they are."""
    style = '"' if _OTHER_LINE_ENDS.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _set_up() -> None:
    former = yaml.SafeLoader.yaml_implicit_resolvers
    numbers = {_INT, _FLOAT}
    Loader.yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] not in numbers]
        for first, resolvers in former.items()
    }
    for tag, pattern, first in _NUMBERS:
        for each in (Loader, Dumper):
            # What only one of the two versions takes for a number is written in quotes.
            each.add_implicit_resolver(tag, pattern, list(first))
    for tag in numbers:
        Loader.add_constructor(tag, _number_of)
    Loader.add_constructor("tag:yaml.org,2002:str", _text_of)
    Dumper.add_representer(str, _write_text)


_set_up()
