"""Exceptions as plain data."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyserve
from pyserve.api.handles.failures import (
    FAILURE_BYTES_MAX,
    encode_failure,
    is_abort,
    rebuild,
)
from pyserve.config import check_address
from pyserve.errors import RemoteError, RequestTimeout
from pyserve.observe.failures import as_answer


class TwoFieldsError(Exception):
    """Its arguments are not those of its constructor."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code
        self.why = why


class OwnStateError(Exception):
    """Its state has another type than dict."""

    def __reduce__(self):
        return type(self), self.args, ("state",)

    def __setstate__(self, state):
        pass


class HostileError(Exception):
    """Refuses to describe itself."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def _unknown(base: type[Exception]) -> type[Exception]:
    """Return a type that no other process can import, and none has got."""
    return type("Unknown", (base,), {"__module__": "no_such_module"})


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_an_exception_with_a_state_of_its_own_kind_keeps_type_and_text():
    rebuilt = rebuild(encode_failure(_raised(OwnStateError("text"))))
    assert isinstance(rebuilt, OwnStateError)
    assert "text" == str(rebuilt)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("text"),
        ValueError(),
        ValueError(1, (2, [3.5, None]), {"four": b"4"}),
        KeyError("key"),
        FileNotFoundError(2, "not there", "/a/file"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
        TwoFieldsError(5, "because"),
        RequestTimeout("late"),
        ValueError("surrogate \udcff"),
    ],
    ids=repr,
)
def test_an_exception_keeps_type_arguments_and_text(error: Exception):
    rebuilt = rebuild(encode_failure(_raised(error)))
    assert type(error) is type(rebuilt)
    assert error.args == rebuilt.args
    assert str(error) == str(rebuilt)
    assert "in _raised" in rebuilt.remote_traceback
    state = {key: value for key, value in vars(rebuilt).items() if key != "remote_traceback"}
    assert vars(error) == state


def test_what_a_process_notes_for_its_log_stays_there():
    rebuilt = rebuild(encode_failure(as_answer(_raised(ValueError("text")))))
    assert {"remote_traceback"} == vars(rebuilt).keys()


def test_a_traceback_has_no_frames_of_this_package():
    with ThreadPoolExecutor() as pool:
        error = pool.submit(lambda: check_address("--address", "nowhere")).exception()
    assert error is not None
    (trace,) = vars(rebuild(encode_failure(error))).values()
    assert 1 == trace.count("  File ")


def test_an_exception_that_cannot_describe_itself_arrives():
    assert isinstance(rebuild(encode_failure(_raised(HostileError("x")))), HostileError)


def test_only_exceptions_are_made():
    """Neither functions nor exits nor other classes, whatever a trailer names."""
    import msgpack

    for name in ("os:system", "builtins:SystemExit", "pathlib:Path", "no_such:Thing", "x", ""):
        data = msgpack.packb({"type": name, "text": "t", "args": ["t"], "state": {}})
        assert isinstance(rebuild(data), RemoteError)


def test_only_plain_values_are_made():
    """Whatever a trailer says of an argument: no class is called, and nothing is unpickled."""
    import msgpack

    def known(kind: str, payload: object) -> msgpack.ExtType:
        return msgpack.ExtType(2, msgpack.packb([kind, payload]))

    for value in (
        known("enum", ["os:system", "true", "shown", "text"]),
        known("enum", ["pathlib:Path", "home", "shown", "text"]),
        known("numpy", ["O", b"x" * 8, "shown", "text"]),
        known("numpy", ["<i8", b"x", "shown", "text"]),
        known("no such kind", ["a", "shown", "text"]),
    ):
        fields = {"type": "builtins:ValueError", "text": "text", "args": [value], "state": {}}
        rebuilt = rebuild(msgpack.packb(fields))
        assert ValueError is type(rebuilt)
        assert ("shown",) == rebuilt.args


def test_only_class_methods_of_an_exception_make_it():
    import msgpack

    for maker in ("mro", "__subclasses__", "with_traceback", "__reduce__", "from_bytes"):
        fields = {"type": "builtins:OSError", "text": "t", "args": ["t"], "state": {}}
        rebuilt = rebuild(msgpack.packb({**fields, "maker": maker}))
        assert OSError is type(rebuilt)


@given(st.binary(max_size=200))
def test_garbage_is_a_remote_error(data: bytes):
    assert isinstance(rebuild(data), Exception)


def test_notes_and_causes_are_told():
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise ValueError("second") from first
    except ValueError as error:
        error.add_note("a note")
        rebuilt = rebuild(encode_failure(error))
    assert ["a note"] == rebuilt.__notes__
    assert "KeyError: 'first'" in str(rebuilt.__cause__)


def test_a_remote_error_passes_through_unchanged():
    first = rebuild(encode_failure(_raised(_unknown(ValueError)(5))))
    second = rebuild(encode_failure(_raised(first)))
    assert isinstance(first, RemoteError)
    assert isinstance(second, RemoteError)
    assert first.args == second.args


def test_long_failures_fit():
    def deep(depth: int) -> None:
        if depth == 0:
            raise ValueError("x" * 100_000, "y" * 100_000)
        deep(depth - 1)

    try:
        deep(200)
    except ValueError as error:
        error.add_note("z" * 100_000)
        data = encode_failure(error)
    assert len(data) <= FAILURE_BYTES_MAX
    rebuilt = rebuild(data)
    assert ValueError is type(rebuilt)
    assert [100_000, 100_000] == [_whole_length(text) for text in rebuilt.args]


def _whole_length(text: str) -> int:
    found = re.fullmatch(r"(.*) \.\.\. \((\d+) characters cut\)", text, re.DOTALL)
    assert found is not None
    kept, cut = found.groups()
    return len(kept) + int(cut)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("k" * 10_000),
        ImportError("i" * 10_000),
        TwoFieldsError(5, "b" * 10_000),
        ValueError("\U0001f600" * 10_000),
        ValueError("\udcff" * 10_000),
        ValueError("short", "l" * 10_000),
    ],
    ids=lambda error: type(error).__name__,
)
def test_long_texts_are_cut_and_the_type_stays(error: Exception):
    """A program tells failures apart by type, however much their texts say."""
    error.add_note("n" * 200)
    data = encode_failure(_raised(error))
    rebuilt = rebuild(data)
    assert len(data) <= FAILURE_BYTES_MAX
    assert type(error) is type(rebuilt)
    assert "characters cut)" in str(rebuilt)
    assert str(error)[:50] == str(rebuilt)[:50]
    if isinstance(error, TwoFieldsError):
        assert (5, 10_000) == (rebuilt.code, _whole_length(rebuilt.why))


@pytest.mark.parametrize("kind", [ValueError, KeyError, TypeError])
@pytest.mark.parametrize(
    "arguments", [(b"x" * 10_000,), ("x" * 10_000, 1), ("x",) * 20_000, (list(range(10**6)),)]
)
def test_large_arguments_of_other_kinds_leave_type_and_text(
    kind: type[Exception], arguments: tuple[object, ...]
):
    error = _raised(kind(*arguments))
    data = encode_failure(error)
    assert len(data) <= FAILURE_BYTES_MAX
    rebuilt = rebuild(data)
    assert kind is type(rebuilt)
    assert str(error)[:300] == str(rebuilt)[:300]


def test_abort_is_in_the_status():
    import grpc

    assert is_abort(encode_failure(pyserve.Abort(grpc.StatusCode.ABORTED, "why")))
    assert not is_abort(encode_failure(ValueError()))
