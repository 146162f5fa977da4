"""Exceptions that keep their state elsewhere, refuse to be changed, or cannot be read."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import subprocess
import urllib.error
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from pyserve.api.handles.failures import encode_failure, rebuild
from pyserve.errors import RemoteError


def sent(error: Exception) -> Exception:
    """Return an exception as its caller gets it."""
    try:
        raise error
    except Exception as caught:
        return rebuild(encode_failure(caught))


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int
    why: str = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrozenKeywordError(Exception):
    code: int
    why: str = "none"


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotsError(Exception):
    code: int
    why: str = "none"


class GuardedError(Exception):
    """Takes no attributes but its own."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __setattr__(self, name: str, value: object) -> None:
        if name != "code":
            raise AttributeError(f"no {name}")
        super().__setattr__(name, value)


class SlotsError(Exception):
    __slots__ = ("code",)

    def __init__(self, *, code: object) -> None:
        super().__init__("text")
        self.code = code


class MadeByError(Exception):
    """Pickle makes it with a function that is not its constructor."""

    __slots__ = ("code",)

    def __init__(self, *, code: object) -> None:
        super().__init__(f"text {code}")
        self.code = code

    def __reduce__(self) -> Any:
        return functools.partial(type(self), code=self.code), ()


class NewError(Exception):
    """Only its ``__new__`` takes both arguments."""

    def __new__(cls, first: object, second: object) -> NewError:
        made = super().__new__(cls, first)
        made.code = second
        return made

    def __init__(self, first: object, second: object) -> None:
        super().__init__(first)

    code: object


class StateError(Exception):
    """Restores its state itself."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> Any:
        return type(self), self.args, {"code as text": str(self.code)}

    def __setstate__(self, state: Any) -> None:
        self.code = int(state["code as text"])


class OwnOSError(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)
        self.path = path


class OwnImportError(ImportError):
    def __init__(self, module: str) -> None:
        super().__init__(f"{module} is needed", name=module)


@pytest.mark.parametrize(
    "error",
    [
        FrozenError(3),
        FrozenKeywordError(code=3),
        FrozenSlotsError(3),
        GuardedError(3),
        SlotsError(code=3),
        SlotsError(code=("a", 1)),
        MadeByError(code=3),
        NewError("text", 3),
        StateError("text", 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_arrives_whatever_becomes_of_setting_its_attributes(error: Any) -> None:
    again: Any = sent(sent(error))
    assert type(error) is type(again)
    assert (str(error), error.args, error.code) == (str(again), again.args, again.code)
    assert "in sent" in again.remote_traceback
    assert "in sent" in str(again.__cause__)


def test_notes_are_added_to_what_refuses_attributes() -> None:
    error = FrozenError(3)
    error.__dict__["__notes__"] = ["a note"]
    assert ["a note"] == sent(error).__notes__


def test_exceptions_that_refuse_attributes_stay_in_their_group() -> None:
    group: Any = sent(ExceptionGroup("several", [FrozenError(1), GuardedError(2)]))
    assert [FrozenError, GuardedError] == [type(each) for each in group.exceptions]


def _raised_by(function: Any, *arguments: Any) -> Any:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Whichever it is.
        function(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (_raised_by(__import__, "no_such_module"), "name path msg"),
        (ImportError("text", name="a", path="/b"), "name path msg"),
        (OwnImportError("torch"), "name path msg"),
        (_raised_by(getattr, "text", "nothing"), "name"),
        (_raised_by(eval, "nothing_of_the_name"), "name"),
        (_raised_by(compile, "a b", "f.py", "exec"), "msg filename lineno offset text end_offset"),
        (FileNotFoundError(2, "not there", "a", None, "b"), "errno strerror filename filename2"),
        (OwnOSError("/a"), "errno strerror filename path"),
        (urllib.error.HTTPError("http://a", 404, "none", None, None), "code msg filename"),  # type: ignore[arg-type]
        (_raised_by(b"\xff".decode), "encoding object start end reason"),
        (subprocess.CalledProcessError(3, ["a"], b"out"), "returncode cmd output"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_members_of_types_in_c_arrive(error: Exception, names: str) -> None:
    rebuilt = sent(error)
    assert type(error) is type(rebuilt)
    assert (str(error), error.args) == (str(rebuilt), rebuilt.args)
    for name in names.split():
        assert getattr(error, name) == getattr(rebuilt, name), name


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_no_call_ends_the_loop_that_it_is_made_in(kind: type[Exception]) -> None:
    rebuilt = sent(kind(5))
    assert RuntimeError is type(rebuilt)
    assert f"the call raised {kind.__name__}" == str(rebuilt)
    assert "in sent" in vars(rebuilt)["remote_traceback"]
    assert kind is type(rebuilt.__cause__)
    nested = sent(ValueError(kind(5))).args[0]
    assert (kind, (5,)) == (type(nested), nested.args)


def test_an_exception_that_makes_its_text_of_what_cannot_be_sent_has_it() -> None:
    error = _raised_by(np.add, "a", 1)
    for again in (sent(error), sent(sent(error))):
        assert isinstance(again, type(error))
        assert (type(error).__qualname__, str(error)) == (type(again).__qualname__, str(again))
        with pytest.raises(TypeError, match="did not contain a loop"):
            raise again


def _refuse(self: object, *_: object) -> Any:
    raise LookupError


@pytest.mark.parametrize(
    "name", ["__bool__", "__len__", "__eq__", "__hash__", "__str__", "__repr__", "__getattr__"]
)
def test_an_exception_whose_methods_raise_arrives(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = type("HostileError", (Exception,), {name: _refuse, "__module__": __name__})
    monkeypatch.setitem(globals(), "HostileError", kind)
    rebuilt = sent(kind("text", 1))
    assert kind is type(rebuilt)
    assert ("text", 1) == rebuilt.args
    assert "HostileError: " in vars(rebuilt)["remote_traceback"]


@pytest.mark.parametrize("name", ["__cause__", "__context__", "args"])
def test_an_exception_whose_attributes_raise_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = type("HostileError", (Exception,), {name: property(_refuse), "__module__": __name__})
    monkeypatch.setitem(globals(), "HostileError", kind)
    rebuilt = sent(kind("text"))
    assert isinstance(rebuilt, kind | RemoteError)
    assert "text" in str(rebuilt)


class _Failing(grpc.GenericRpcHandler):
    """Answers each method with a status that has a trailer of its own."""

    def service(self, handler_call_details):
        def fail(_request, context):
            context.set_trailing_metadata([("why", "full"), ("what-bin", b"\x00\xff")])
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room ✗")

        if handler_call_details.method.endswith("Stream"):
            return grpc.unary_stream_rpc_method_handler(fail)
        return grpc.unary_unary_rpc_method_handler(fail)


@pytest.fixture
def failing_channel():
    server = grpc.server(ThreadPoolExecutor(1), handlers=[_Failing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()


def _raised(call: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["Call", "Stream"])
def test_errors_of_grpcs_client_tell_their_status(failing_channel, kind: str):
    if kind == "Call":
        error = _raised(lambda: failing_channel.unary_unary("/s/Call")(b"", timeout=10))
    else:
        error = _raised(lambda: list(failing_channel.unary_stream("/s/Stream")(b"", timeout=10)))
    once: Any = sent(error)
    twice: Any = sent(once)
    for found in (once, twice):
        assert type(found) is type(error)
        assert grpc.StatusCode.RESOURCE_EXHAUSTED is found.code()
        assert "no room ✗" == found.details()
        assert error.debug_error_string() == found.debug_error_string()
        assert [("why", "full"), ("what-bin", b"\x00\xff")] == list(found.trailing_metadata())
        assert repr(error) == repr(found)
        assert str(error) == str(found)
    group: Any = sent(ExceptionGroup("two", [error, ValueError("x")]))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is group.exceptions[0].code()
    del once, twice, found, group
    gc.collect()


def test_a_large_status_of_grpcs_client_is_cut():
    channel: Any = grpc._channel  # grpc has no public way to make one
    trailers = [("first", "a"), ("large", "b" * 9000), ("last", "c")]
    state = channel._RPCState((), (), trailers, grpc.StatusCode.INTERNAL, "d" * 9000)
    state.debug_error_string = "e" * 9000
    found: Any = sent(channel._InactiveRpcError(state))
    assert grpc.StatusCode.INTERNAL is found.code()
    assert "d" * 100 == found.details()[:100]
    assert ("first", "a") == found.trailing_metadata()[0]


def raising(error: Exception) -> None:
    raise error


class NumberedError(Exception):
    def __init__(self, code: int, answer: str) -> None:
        super().__init__(code, answer)
        self.code = code


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        (lambda: json.loads("[" + "1," * 3_000), {"pos": 6_001, "lineno": 1, "colno": 6_002}),
        (lambda: json.loads("\n" * 9_000 + "x"), {"pos": 9_000, "lineno": 9_001, "colno": 1}),
        (lambda: raising(NumberedError(7, "<html>" * 5_000)), {"code": 7}),
        (
            (b"a" * 30_000 + b"\xff").decode,
            {"encoding": "utf-8", "start": 30_000, "reason": "invalid start byte"},
        ),
    ],
)
def test_a_large_document_costs_an_exception_nothing_else(
    call: Callable[[], object], kept: dict[str, object]
):
    """The document is cut; where it broke, and why, is what callers look at."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of several types
        call()
    found: Any = sent(caught.value)
    assert type(found) is type(caught.value)
    assert kept == {name: getattr(found, name) for name in kept}
    notes = "".join(getattr(found, "__notes__", ()))
    assert str(caught.value)[:90] in f"{found}{notes}"
