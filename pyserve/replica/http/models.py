"""Bodies for pydantic's models. Imports pydantic only where a handler's annotation has done so."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from pyserve.replica.http.errors import InvalidBody, InvalidJson, Location, mistake


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
