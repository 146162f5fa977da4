"""Converts a request's body to the value of a handler's parameter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from pyserve.bridge import may_have_infinity
from pyserve.replica.http.converters import converter_of, kept_type
from pyserve.replica.http.errors import InvalidJson
from pyserve.replica.http.models import has_models, model_reader
from pyserve.serializers.json import may_have_long_number, read_exactly


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
