"""Errors of a request's body, described so that its sender can fix them."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from pyserve.errors import PyserveError

Location = tuple[str | int, ...]


class InvalidJson(json.JSONDecodeError):
    """The body is not valid JSON. Answered with 400."""


class InvalidForm(PyserveError, ValueError):
    """The body is not a form, or more than the handler takes as one. Answered with 400."""


class InvalidBody(PyserveError, ValueError):
    """The body is JSON, but does not match the handler's annotation. Answered with 422.

    Args:
        errors: One dict for each mistake: ``loc``, ``msg`` and ``type``, as in FastAPI's answers.
    """

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__("; ".join(f"{_text_of(each['loc'])}: {each['msg']}" for each in errors))
        self.errors = errors


def mistake(where: Location, text: str, kind: str) -> dict[str, Any]:
    """Return one entry of ``InvalidBody.errors``."""
    loc = [_writable(each) if isinstance(each, str) else each for each in where]
    return {"loc": loc, "msg": _writable(text), "type": kind}


def refuse(where: Location, text: str, kind: str) -> NoReturn:
    """Raise ``InvalidBody`` for one mistake."""
    raise InvalidBody([mistake(where, text, kind)])


def name_of(value: object) -> str:
    """Return JSON's name of a value's type."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _writable(text: str) -> str:
    """Return a text that the answer can have: texts of user code may have halves of characters."""
    return text.encode(errors="backslashreplace").decode()


def _text_of(location: list[str | int]) -> str:
    return ".".join(map(str, location))
