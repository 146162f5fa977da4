"""Converters from JSON bodies to annotated data types, compiled once for each annotation.

Only values that have to be built or are cheap to check are checked: the elements of a
``list[float]`` are taken from the JSON as they are. Pydantic is imported only where a handler's
annotation has done so.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import difflib
import enum
import functools
import inspect
import json
import pathlib
import sys
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import typing_extensions

from pyserve.bridge import may_have_infinity
from pyserve.replica.http.errors import InvalidBody, InvalidJson, Location, mistake, name_of, refuse
from pyserve.serializers.json import may_have_long_number, read_exactly
from pyserve.signatures import read_signature, text_of_reference

Convert = Callable[[Any, Location], Any]
# Longer names get no proposal: comparing them costs the product of their lengths.
_PROPOSED_LENGTH_MAX = 128


def is_data(annotation: object) -> bool:
    """Say whether a parameter with this annotation gets the body rather than the request."""
    return _compiled(annotation) is not None


def converter_of(annotation: object) -> Convert:
    """Return the function that converts a JSON value to a data type.

    It takes the place of the value in the body too, and raises ``InvalidBody``.
    """
    if has_models(annotation):
        return model_converter(annotation)
    found = _compiled(annotation)
    if found is None:
        raise TypeError(f"{annotation!r} is no data type")
    return found


def _compiled(annotation: Any) -> Convert | None:
    """Return the converter of a data type, ``None`` where ``annotation`` is none."""
    if annotation is None or annotation is type(None):
        return _none
    if isinstance(annotation, typing.NewType):
        return _compiled(annotation.__supertype__)
    origin = typing.get_origin(annotation)
    if origin in {typing.Annotated, typing_extensions.Annotated}:
        return _compiled(typing.get_args(annotation)[0])
    if origin in {typing.Union, types.UnionType}:
        return _union(typing.get_args(annotation))
    if origin is typing.Literal:
        return _literal(typing.get_args(annotation))
    if is_model(annotation):
        return model_converter(annotation)
    kind = origin or annotation
    if not isinstance(kind, type):
        return None
    return _of_class(kind, typing.get_args(annotation))


def _of_class(kind: type, args: tuple[Any, ...]) -> Convert | None:
    if typing_extensions.is_typeddict(kind):
        return _typed_dict(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if issubclass(kind, enum.Enum):
        return _built(kind, kind, "a value of the enumeration")
    if kind.__module__.partition(".")[0] == "numpy" and kind.__name__ == "ndarray":
        # Not imported here: the service brings it.
        return _built(kind, _array, "an array of numbers")
    if kind in _BYTES:
        return _bytes(kind)
    if kind in _PARSED:
        return _built(kind, _PARSED[kind], "the text of a")
    for names, accepted, text in _BASIC:
        if kind in names:
            return _container(kind, accepted, text, args)
    return None


# By annotation: what JSON's value has to be, and how a message calls it.
_BYTES: tuple[type, ...] = (bytes, bytearray, memoryview)
_PARSED: Mapping[Any, Callable[[Any], Any]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    decimal.Decimal: lambda value: decimal.Decimal(str(value)),
    uuid.UUID: uuid.UUID,
    pathlib.Path: pathlib.Path,
}
_SEQUENCES = (
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_BASIC: tuple[tuple[tuple[Any, ...], tuple[type, ...], str], ...] = (
    (
        (dict, collections.abc.Mapping, collections.abc.MutableMapping, collections.OrderedDict),
        (dict,),
        "an object",
    ),
    (
        (list, tuple, set, frozenset, *_SEQUENCES),
        (list,),
        "an array",
    ),
    ((str,), (str,), "a string"),
    ((bool,), (bool,), "a boolean"),
    ((int,), (int,), "an integer"),
    ((float,), (float, int), "a number"),
)
# Types of `_BASIC` that are made of what JSON's value is.
_REBUILT = frozenset({tuple, set, frozenset, float})


def _container(kind: Any, accepted: tuple[type, ...], text: str, args: tuple[Any, ...]) -> Convert:
    make = kind if kind in _REBUILT else None
    refuses_bool = kind in {int, float}
    element = _element(kind, args)

    def convert(value: Any, where: Location) -> Any:
        if not isinstance(value, accepted) or (refuses_bool and isinstance(value, bool)):
            refuse(where, f"expected {text}, not {name_of(value)}", f"{accepted[0].__name__}_type")
        if element is not None:
            value = _each(value, element, where)
        if make is None:
            return value
        try:
            return make(value)
        except OverflowError:
            refuse(where, "expected a number that a float can hold", "finite_number")
        except TypeError as error:
            refuse(where, f"expected values that a {kind.__name__} can hold: {error}", "set_item")

    return convert


def kept_type(annotation: Any) -> type | None:
    """Return the type of JSON's values that ``converter_of`` returns as they are, if there is one.

    To look at it takes less than to call the converter.
    """
    kind, args = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if kind in _REBUILT or typing_extensions.is_typeddict(kind) or _element(kind, args) is not None:
        return None
    return next((accepted[0] for kinds, accepted, _ in _BASIC if kind in kinds), None)


def _element(kind: Any, args: tuple[Any, ...]) -> Convert | None:
    """Return the converter of elements that have to be built; others stay what they are."""
    inner = [each for each in args if each is not Ellipsis]
    if not inner or (kind is tuple and Ellipsis not in args):
        return None
    return _compiled(inner[-1]) if _is_built(inner[-1]) else None


def _is_built(annotation: Any) -> bool:
    if any(_is_built(each) for each in typing.get_args(annotation)):
        return True
    return (
        dataclasses.is_dataclass(annotation)
        or typing_extensions.is_typeddict(annotation)
        or (isinstance(annotation, type) and issubclass(annotation, enum.Enum))
        or is_model(annotation)
        or annotation in _PARSED
    )


def _each(value: Any, convert: Convert, where: Location) -> Any:
    if isinstance(value, dict):
        return {key: convert(each, (*where, key)) for key, each in value.items()}
    return [convert(each, (*where, index)) for index, each in enumerate(value)]


def _none(value: Any, where: Location) -> None:
    if value is not None:
        refuse(where, f"expected null, not {name_of(value)}", "none_required")


def _bytes(kind: Any) -> Convert:
    def convert(value: Any, where: Location) -> Any:
        if not isinstance(value, str):
            refuse(where, f"expected a string, not {name_of(value)}", "bytes_type")
        return kind(value.encode())

    return convert


def _literal(values: tuple[Any, ...]) -> Convert:
    def convert(value: Any, where: Location) -> Any:
        if not any(value == each and type(value) is type(each) for each in values):
            refuse(where, f"expected one of {', '.join(map(repr, values))}", "literal_error")
        return value

    return convert


def _union(members: tuple[Any, ...]) -> Convert | None:
    found = [_compiled(each) for each in members]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None

    def convert(value: Any, where: Location) -> Any:
        errors: list[dict[str, Any]] = []
        for attempt in known:
            try:
                return attempt(value, where)
            except InvalidBody as error:
                errors += error.errors
        raise InvalidBody(errors)

    return convert


def _built(kind: Any, make: Callable[[Any], Any], text: str) -> Convert:
    def convert(value: Any, where: Location) -> Any:
        try:
            return make(value)
        except (TypeError, ValueError, AttributeError, ArithmeticError):
            refuse(where, f"expected {text} {kind.__name__}", "value_error")

    return convert


def _array(value: Any) -> Any:
    array = sys.modules["numpy"].asarray(value)
    # Of whole numbers beyond 64 bits, as browsers write 1e20, numpy makes an array of objects.
    if array.dtype == object and all(isinstance(each, int | float) for each in array.flat):
        return array.astype(float)
    return array


# --- objects with fields --------------------------------------------------------------------


def _typed_dict(kind: Any) -> Convert:
    def fields() -> Fields:
        hints = typing_extensions.get_type_hints(kind)
        return {name: _compiled(hint) for name, hint in hints.items()}, kind.__required_keys__

    return _fields_converter(fields, dict)


def _dataclass(kind: Any) -> Convert:
    def fields() -> Fields:
        hints = _hints_of(kind)
        # Not dataclasses.MISSING: a class that has travelled by value has a copy of it.
        parameters = read_signature(kind).parameters.values()
        required = frozenset(p.name for p in parameters if p.default is inspect.Parameter.empty)
        return {p.name: _compiled(hints.get(p.name, Any)) for p in parameters}, required

    return _fields_converter(fields, lambda values: kind(**values))


def _hints_of(kind: Any) -> Mapping[str, Any]:
    """Return the types of fields; those whose names are not there are taken as they come."""
    try:
        return typing_extensions.get_type_hints(kind)
    except NameError:
        # Texts in a class that has travelled by value: its module is not here.
        known = getattr(kind.__init__, "__globals__", {})
        fields = {field.name: text_of_reference(field.type) for field in dataclasses.fields(kind)}
        return {name: _looked_up(each, known) for name, each in fields.items()}


def _looked_up(annotation: Any, known: Mapping[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(known))  # noqa: S307 (the user's code)
    except NameError:
        return Any


# Converters by name, and the names that have no default.
Fields = tuple[Mapping[str, Convert | None], collections.abc.Set[str]]


def _fields_converter(
    fields: Callable[[], Fields], make: Callable[[dict[str, Any]], Any]
) -> Convert:
    # Looked at when the first value comes: a type may contain itself.
    known = functools.cache(fields)

    def convert(value: Any, where: Location) -> Any:
        values = read_fields(value, where, *known())
        try:
            return make(values)
        except ValueError as error:  # What __post_init__ says of the values.
            raise InvalidBody([mistake(where, str(error), "value_error")]) from error

    return convert


def read_fields(
    value: Any,
    where: Location,
    fields: Mapping[str, Convert | None],
    required: collections.abc.Set[str],
    *,
    takes_others: bool = False,
) -> dict[str, Any]:
    """Return the fields of an object, converted.

    Raises:
        InvalidBody: It is no object, or fields are missing, unknown or wrong; all are named.
    """
    if not isinstance(value, dict):
        refuse(where, f"expected an object, not {name_of(value)}", "dict_type")
    errors = [
        mistake((*where, name), "field required", "missing")
        for name in sorted(required - value.keys())
    ]
    values: dict[str, Any] = {}
    is_told = False  # To look for near names takes time, which strangers choose.
    for name, each in value.items():
        convert = fields.get(name)
        if name not in fields and not takes_others:
            near = [] if is_told else _near(name, fields)
            is_told = True
            text = f"unknown field, did you mean {near[0]}?" if near else "unknown field"
            errors.append(mistake((*where, name), text, "extra_forbidden"))
        elif convert is None:
            values[name] = each
        else:
            try:
                values[name] = convert(each, (*where, name))
            except InvalidBody as error:
                errors += error.errors
    if errors:
        raise InvalidBody(errors)
    return values


def _near(name: str, known: collections.abc.Iterable[str]) -> list[str]:
    if len(name) > _PROPOSED_LENGTH_MAX:
        return []
    return difflib.get_close_matches(name, list(known), n=1)


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidJson: It is not JSON, or has a number or a string that JSON cannot represent.
    """
    try:
        value = orjson.loads(body)
    except ValueError:
        return _parse_again(body)
    return _parse_again(body) if may_have_long_number(body) else value


def reader_of(annotation: object) -> Callable[[bytes], Any]:
    """Return the function that reads a body as a value of a data type.

    It raises ``InvalidJson`` and ``InvalidBody``.
    """
    if annotation is bytes or annotation is bytearray or annotation is memoryview:
        return annotation
    if has_models(annotation):
        return _reader_of_models(annotation)
    convert, kept = converter_of(annotation), kept_type(annotation)

    def read(body: bytes) -> Any:
        value = parse_json(body)
        if type(value) is kept:
            return value
        try:
            return convert(value, ("body",))
        except RecursionError:
            raise InvalidJson("it is nested too deeply for its type", "", 0) from None

    return read


def _reader_of_models(annotation: object) -> Callable[[bytes], Any]:
    validate = model_reader(annotation)

    def read(body: bytes) -> Any:
        # pydantic takes these words as numbers, and what is too large as an infinity. Where they
        # are, they mostly are part of a text.
        if b"NaN" in body or b"Infinity" in body or may_have_infinity(body):
            parse_json(body)
        return validate(body)

    return read


def _parse_again(body: bytes) -> Any:
    """Read what orjson refuses or does not read exactly."""
    if not body.strip():
        raise InvalidJson("it is empty", "", 0)
    try:
        return read_exactly(body)
    except json.JSONDecodeError as error:
        raise InvalidJson(error.msg, error.doc, error.pos) from None
    except (ValueError, RecursionError) as error:  # no UTF-8; brackets in brackets
        raise InvalidJson(str(error), "", 0) from None


def is_model(annotation: object) -> bool:
    """Say whether it is a pydantic model; without pydantic there is none."""
    return isinstance(annotation, type) and hasattr(annotation, "__pydantic_validator__")


def has_models(annotation: object) -> bool:
    """Say whether it is one, or is made of some, as ``list[Model]`` is."""
    return is_model(annotation) or any(has_models(each) for each in typing.get_args(annotation))


def model_reader(annotation: Any) -> Callable[[bytes], Any]:
    """Return the function that parses and validates a body in one step."""
    from pydantic import TypeAdapter, ValidationError

    validate = TypeAdapter(annotation).validate_json

    def read(body: bytes) -> Any:
        try:
            return validate(body)
        except ValidationError as error:
            errors = _errors_of(error)
            if errors[0]["type"] == "json_invalid":
                raise InvalidJson(errors[0]["msg"], "", 0) from None
            raise _invalid(errors, ("body",)) from None

    return read


def model_converter(annotation: Any) -> Callable[[Any, Location], Any]:
    """Return the function that validates a part of a body."""
    from pydantic import TypeAdapter, ValidationError

    validate = TypeAdapter(annotation).validate_python

    def convert(value: Any, where: Location) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            raise _invalid(_errors_of(error), where) from None

    return convert


def _errors_of(error: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = error.errors(
        include_url=False, include_context=False, include_input=False
    )
    return found


def _invalid(errors: list[dict[str, Any]], where: Location) -> InvalidBody:
    return InvalidBody([mistake((*where, *e["loc"]), e["msg"], e["type"]) for e in errors])
