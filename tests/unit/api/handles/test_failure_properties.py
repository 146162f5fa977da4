"""Whatever an exception holds, it can be described, and what is known of it arrives."""

from __future__ import annotations

import asyncio
import collections
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyserve
from pyserve.api.handles.failures import FAILURE_BYTES_MAX, encode_failure, is_abort, rebuild
from pyserve.errors import RemoteError
from pyserve.observe.failures import describe, text_of
from pyserve.replica.plain.calls import status_of_plain


class Text(str):
    def __new__(cls, text: str, name: object = None) -> Text:
        made = super().__new__(cls, text)
        made.name = name
        return made

    name: object


class OddText(Text):
    """Has methods that do something else."""

    def __len__(self) -> int:
        raise LookupError

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: object) -> str:
        raise LookupError

    def __format__(self, spec: str) -> str:
        raise LookupError


class Number(int):
    pass


class Data(bytes):
    pass


class Pair(collections.namedtuple("Pair", "a b")):
    pass


class Notes(list[object]):
    def __iter__(self) -> Any:
        raise LookupError

    def __getitem__(self, key: object) -> Any:
        raise LookupError


class Odd:
    """Raises what nobody expects of a ``repr``."""

    def __init__(self, raises: type[BaseException]) -> None:
        self.raises = raises

    def __repr__(self) -> str:
        raise self.raises


class Liar:
    """Says that it is something else, and is not."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind


class PlainError(Exception):
    pass


class TextError(Exception):
    """Its texts are of a subclass."""

    def __str__(self) -> str:
        return OddText("shown")

    def __repr__(self) -> str:
        return OddText("shown as this")


class Leaving(Exception):
    """Leaves wherever it is described."""

    def __str__(self) -> str:
        raise asyncio.CancelledError

    def __reduce__(self) -> Any:
        raise GeneratorExit


class StateError(Exception):
    def __reduce__(self) -> Any:
        return type(self), self.args, {OddText("key"): OddText("value"), 5: 6}


class Meta(type):
    @property
    def __name__(cls) -> Any:
        raise LookupError

    @property
    def __module__(cls) -> Any:
        raise LookupError


class MetaError(Exception, metaclass=Meta):
    pass


class OwnAbort(pyserve.Abort):
    def __str__(self) -> str:
        raise asyncio.CancelledError

    def __reduce__(self) -> Any:
        raise GeneratorExit


LEAVES = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.builds(Text, st.text(max_size=5), st.integers()),
    st.builds(OddText, st.text(max_size=5)),
    st.builds(Text, st.just("x" * 2_000)),
    st.builds(Number, st.integers()),
    st.builds(Data, st.binary(max_size=5)),
    st.sampled_from([asyncio.CancelledError, GeneratorExit, SystemExit, MemoryError]).map(Odd),
    st.sampled_from([str, int, ValueError, list, dict]).map(Liar),
    st.just("\udcff"),
)
KINDS = st.sampled_from([PlainError, TextError, Leaving, StateError, KeyError, OSError])


def _made(kind: Any, arguments: list[object], state: dict[str, object], notes: object) -> Any:
    error = kind(*arguments)
    error.__dict__.update(state)
    error.__dict__["__notes__"] = notes
    return error


def _errors(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    notes = st.one_of(values, st.lists(values, max_size=3).map(Notes), st.lists(values, max_size=3))
    state = st.dictionaries(st.builds(OddText, st.sampled_from("abc")), values, max_size=2)
    return st.builds(_made, KINDS, st.lists(values, max_size=2), state, notes)


VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Pair, inner, inner),
        st.dictionaries(st.builds(OddText, st.text(max_size=3)), inner, max_size=2),
        _errors(inner),
    ),
    max_leaves=6,
)


@given(_errors(VALUES), _errors(LEAVES))
def test_every_exception_can_be_described(error: Any, cause: Any) -> None:
    error.__cause__ = cause
    data = encode_failure(error)
    assert bytes is type(data)
    assert len(data) <= FAILURE_BYTES_MAX
    rebuilt = rebuild(data)
    assert isinstance(rebuilt, type(error)), rebuilt


CONTEXT = SimpleNamespace(
    call=SimpleNamespace(framed=True),
    method=SimpleNamespace(path="/a/b"),
    cancel_reason=None,
    time_remaining=lambda: None,
)


@given(_errors(LEAVES))
def test_every_exception_has_a_status(error: Any) -> None:
    status = status_of_plain(error, CONTEXT, development=False)
    assert grpc.StatusCode.INTERNAL is status.code


def test_the_name_of_a_type_needs_no_metaclass() -> None:
    rebuilt = rebuild(encode_failure(MetaError("text")))
    # pytest cannot show it.
    assert (True, "text") == (type(rebuilt) is MetaError, str(rebuilt))


def test_an_abort_that_cannot_be_read_stays_one() -> None:
    data = encode_failure(OwnAbort(grpc.StatusCode.ABORTED, "why"))
    assert is_abort(data)
    assert isinstance(rebuild(data), OwnAbort)


def test_texts_of_an_exception_are_plain() -> None:
    error = TextError()
    assert (str, "shown") == (type(text_of(error)), text_of(error))
    assert "TextError: shown" == describe(error)


@pytest.mark.parametrize("name", ["Unknown" * 2_000, "\U0001f600" * 3_000])
def test_a_long_name_fits(name: str) -> None:
    kind = type(name, (Exception,), {"__module__": "no_such_module"})
    data = encode_failure(kind("\U0001f600" * 3_000))
    assert len(data) <= FAILURE_BYTES_MAX
    assert isinstance(rebuild(data), RemoteError)


def test_a_note_keeps_its_class_and_attributes() -> None:
    error = KeyError("k")
    error.add_note(Text("a note", int))
    error.add_note("another")
    first, second = rebuild(encode_failure(error)).__notes__
    assert (Text, "a note", int) == (type(first), first, first.name)  # type: ignore[attr-defined]
    assert (str, "another") == (type(second), second)


def test_a_note_of_an_unknown_class_is_a_text() -> None:
    error = KeyError("k")
    error.add_note(type("Lost", (str,), {"__module__": "no_such_module"})("a note"))
    (note,) = rebuild(encode_failure(error)).__notes__
    assert (str, "a note") == (type(note), note)


def test_notes_with_classes_leave_room_for_what_they_are_of() -> None:
    def member(number: int, size: int) -> Exception:
        error = ValueError(number)
        error.add_note(Text("n" * size, number))
        return error

    few = rebuild(encode_failure(ExceptionGroup("g", [member(each, 60) for each in range(8)])))
    assert isinstance(few, ExceptionGroup)
    assert [[each] for each in range(8)] == [
        [getattr(note, "name", None) for note in each.__notes__] for each in few.exceptions
    ]
    many = rebuild(encode_failure(ExceptionGroup("g", [member(each, 120) for each in range(9)])))
    assert isinstance(many, ExceptionGroup)
    assert [["n" * 120]] * 9 == [each.__notes__ for each in many.exceptions]
