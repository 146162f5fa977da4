"""Makes a handler's arguments: the request, its parsed body, or the fields of its body.

Determined once from the handler's signature. A parameter whose annotation is a data type gets the
body, every other one the request; several parameters, or a keyword-only one, get fields by name.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pyserve.errors import UsageError
from pyserve.replica.http.converters import (
    converter_of,
    is_data,
    parse_json,
    read_fields,
    reader_of,
)
from pyserve.replica.http.errors import InvalidJson
from pyserve.signatures import annotations_of, read_signature

if TYPE_CHECKING:
    from pyserve.aio import HttpCall

Given = tuple[tuple[Any, ...], Mapping[str, Any]]
_NO_KEYWORDS: Mapping[str, Any] = {}
_NOTHING: Given = ((), _NO_KEYWORDS)
_LISTS = frozenset({list, tuple, collections.abc.Sequence, collections.abc.Iterable})
# `Request`, `requests.Request` and lists of them, where the name itself cannot be looked up.
_REQUEST_TEXT = re.compile(r"(?:[\w.]+\[)*(?:\w+\.)*Request\]*")


@dataclass(frozen=True, slots=True)
class Arguments:
    """How the arguments of a handler are made.

    Attributes:
        read: Returns them; raises ``InvalidJson`` and ``InvalidBody``.
        needs_body: ``read`` wants the whole body to be there.
        only: Returns the one argument, as ``read`` does, where there is always one and it has no
            keyword.
    """

    read: Callable[[HttpCall], Given]
    needs_body: bool
    only: Callable[[HttpCall], Any] | None = None

    @classmethod
    def of_one(cls, only: Callable[[HttpCall], Any], *, needs_body: bool) -> Arguments:
        """Return those of a handler with one argument."""
        return cls(lambda http: ((only(http),), _NO_KEYWORDS), needs_body, only)


@dataclass(frozen=True, slots=True)
class Signature:
    """How a handler's parameters are filled from a request.

    Attributes:
        takes: The request, the whole body, fields of a JSON object by name, or nothing.
        parameters: All of them.
        hints: The annotation of each; for a batched handler that of an element.
        problem: Why it cannot be called; "": it can.
    """

    takes: Literal["nothing", "request", "body", "fields"]
    parameters: tuple[inspect.Parameter, ...] = ()
    hints: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def only(self) -> inspect.Parameter:
        """The parameter that gets the request or the body."""
        return next((p for p in self.parameters if p.kind not in _VARIADIC), self.parameters[0])

    @property
    def fields(self) -> dict[str, inspect.Parameter]:
        """The parameters that get the fields of their names; the others get the request.

        These are annotated with another type than data, or are called ``request`` without an
        annotation.
        """
        return {
            p.name: p
            for p in self.parameters
            if p.kind not in _VARIADIC
            and (is_data(self.hints[p.name]) or (self.hints[p.name] is Any and p.name != "request"))
        }


def signature_of(function: Callable[..., Any], *, batched: bool) -> Signature:
    """Return what ``function`` takes.

    Args:
        function: The handler, bound.
        batched: Its parameters are lists, one element for each request.
    """
    parameters = tuple(_parameters(function))
    try:
        return _signature_of(parameters, function, batched=batched)
    except Exception as error:
        # What annotations name is anybody's code.
        problem = f"{_label(function)}: its annotations cannot be used: {error}"
        return Signature("nothing", problem=problem)


def _signature_of(
    parameters: tuple[inspect.Parameter, ...], function: Callable[..., Any], *, batched: bool
) -> Signature:
    hints = _hints(function, [each.name for each in parameters], batched=batched)
    unresolved = [hint for hint in hints.values() if isinstance(hint, _Unresolved)]
    if unresolved:
        return Signature("nothing", problem=unresolved[0].text)
    if not parameters:
        return Signature("nothing")
    named = [each for each in parameters if each.kind not in _VARIADIC]
    first = named[0] if named else parameters[0]
    is_request = bool(named) and not is_data(hints[first.name])
    by_name = first.kind in _BY_NAME and not is_request
    if len(named) > 1 or by_name:
        if is_request and all(_has_default(each) for each in named[1:]):
            return Signature("request", (first,), hints)
        return Signature("fields", parameters, hints)
    found = Signature("body", parameters, hints)
    return found if is_data(hints[found.only.name]) else Signature("request", parameters, hints)


def whole_body(function: Callable[..., Any]) -> Arguments:
    """Return how the one argument of ``function`` is made of the JSON body, or as annotated.

    Args:
        function: The handler, bound. Without an annotation of data it gets the JSON value.
    """
    annotation = _annotation(function)
    read = reader_of(annotation) if is_data(annotation) else parse_json
    return Arguments.of_one(lambda http: read(http.whole_body or b""), needs_body=True)


def arguments_of(function: Callable[..., Any], *, batched: bool) -> Arguments:
    """Return how the arguments of ``function`` are made.

    Args:
        function: The handler, bound.
        batched: Its parameters are lists, one element for each request.
    """
    signature = signature_of(function, batched=batched)
    if signature.problem:
        return _unusable(signature.problem)
    try:
        return _arguments_of(signature)
    except Exception as error:
        # Pydantic's checks are long.
        return _unusable(f"{_label(function)}: its annotations cannot be used: {error}")


def _arguments_of(signature: Signature) -> Arguments:
    match signature.takes:
        case "nothing":
            return Arguments(lambda _http: _NOTHING, needs_body=False)
        case "request":
            return _request(signature.only)
        case "body":
            return _whole(signature.only, signature.hints[signature.only.name])
        case "fields":
            return _fields(signature)


# --- one argument ---------------------------------------------------------------------------


def _request(parameter: inspect.Parameter) -> Arguments:
    make = _request_class()
    if parameter.kind is _KINDS.KEYWORD_ONLY:
        name = parameter.name
        return Arguments(lambda http: ((), {name: make(http)}), needs_body=False)
    return Arguments.of_one(make, needs_body=False)


def _request_class() -> Callable[[HttpCall], Any]:
    # Not at the top: it imports Starlette.
    from pyserve.replica.http.requests import PlainRequest

    return PlainRequest


def _whole(parameter: inspect.Parameter, annotation: Any) -> Arguments:
    read_body = reader_of(annotation)
    takes_text = annotation is str

    def value_of(http: HttpCall) -> Any:
        return read_body(http.whole_body or b"")

    def text_of(http: HttpCall) -> Any:
        return _text_of(http.whole_body or b"") if _is_text(http) else value_of(http)

    only = text_of if takes_text else value_of
    if not _has_default(parameter):
        return Arguments.of_one(only, needs_body=True)

    def read(http: HttpCall) -> Given:
        return ((only(http),), _NO_KEYWORDS) if http.whole_body else _NOTHING

    return Arguments(read, needs_body=True)


def _is_text(http: HttpCall) -> bool:
    kind = http.header(b"content-type")
    return kind is not None and kind.strip().lower().startswith(b"text/")


def _text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the text is not UTF-8: {error.reason}", "", error.start) from None


# --- several --------------------------------------------------------------------------------


def _fields(signature: Signature) -> Arguments:
    """Fill parameters with the fields of their names, or with the request."""
    hints = signature.hints
    named = [each for each in signature.parameters if each.kind not in _VARIADIC]
    fields = {
        name: converter_of(hints[name]) if is_data(hints[name]) else None
        for name in signature.fields
    }
    requests = [each.name for each in named if each.name not in fields]
    positional = [each.name for each in named if each.kind is _KINDS.POSITIONAL_ONLY]
    required = {each.name for each in named if each.name in fields and not _has_default(each)}
    takes_others = any(each.kind is _KINDS.VAR_KEYWORD for each in signature.parameters)
    make_request = _request_class() if requests else None

    def read(http: HttpCall) -> Given:
        body = http.whole_body
        value = parse_json(body) if body else {}
        values = read_fields(value, ("body",), fields, required, takes_others=takes_others)
        if make_request is not None:
            values.update(dict.fromkeys(requests, make_request(http)))
        if not positional:
            return (), values
        return tuple(values.pop(name) for name in positional if name in values), values

    return Arguments(read, needs_body=True)


# --- the signature --------------------------------------------------------------------------

_KINDS = inspect.Parameter
_VARIADIC = frozenset({_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD})
_BY_NAME = frozenset({_KINDS.KEYWORD_ONLY, _KINDS.VAR_KEYWORD})


def _annotation(function: Callable[..., Any]) -> object:
    hints = _hints(function, [each.name for each in _parameters(function)], batched=False)
    return next(iter(hints.values()), Any)


def _has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(read_signature(function).parameters.values())
    except (TypeError, ValueError):  # Written in C: it gets what every handler gets.
        return [inspect.Parameter("request", _KINDS.POSITIONAL_ONLY)]


@dataclass(frozen=True)
class _Unresolved:
    """Stands for an annotation that names something which is not there."""

    text: str


def _unusable(text: str) -> Arguments:
    def read(_http: HttpCall) -> Given:
        # Only now: a deployment that is called by handles alone has no use for it.
        raise UsageError(text)

    return Arguments(read, needs_body=False)


def _label(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _hints(function: Callable[..., Any], names: list[str], *, batched: bool) -> dict[str, Any]:
    """Return the annotation of each parameter as an object; of lists that of an element."""
    inner = function
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        inner = getattr(function, "__call__", function)  # noqa: B004 (examined, not called)
    try:
        found = typing.get_type_hints(inner, include_extras=True)
    except Exception:  # Any name in it may be missing, and looking it up may run any code.
        found = _hints_one_by_one(inner)
    hints = {name: found.get(name, Any) for name in names}
    return {name: _element_of(hint) for name, hint in hints.items()} if batched else hints


def _hints_one_by_one(function: Callable[..., Any]) -> dict[str, Any]:
    plain = inspect.unwrap(function)
    annotations = annotations_of(getattr(plain, "__func__", plain))
    return {
        name: _evaluated(function, name, each)
        for name, each in annotations.items()
        if name != "return"
    }


def _evaluated(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    variables = inspect.getclosurevars(inspect.unwrap(function))
    known = {**variables.builtins, **variables.globals, **variables.nonlocals}
    plain: Any = inspect.unwrap(function)
    try:
        return eval(annotation, {**plain.__globals__, **known})  # noqa: S307 (the user's code)
    except Exception as error:
        if _REQUEST_TEXT.fullmatch(annotation.strip("'\" ")):
            return object  # no data: it asks for the request
        return _Unresolved(
            f"{_label(function)}: the annotation {annotation!r} of {name!r} cannot be looked up "
            f"in the replica ({type(error).__name__}: {error}); import what it names at the top "
            f"of the module, or leave `from __future__ import annotations` out"
        )


def _element_of(annotation: Any) -> Any:
    if annotation is list:
        return Any
    arguments = typing.get_args(annotation)
    is_list = typing.get_origin(annotation) in _LISTS and arguments
    return arguments[0] if is_list else annotation
