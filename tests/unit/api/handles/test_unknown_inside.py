"""What the caller lacks inside of an exception leaves everything else of it."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import pytest

from pyserve.api.handles.failure_values import Repr
from pyserve.api.handles.failures import encode_failure, rebuild
from pyserve.errors import RemoteError


class TwoError(Exception):
    def __init__(self, first: object, second: object) -> None:
        super().__init__(first, second)
        self.second = second


class ColonError(Exception):
    def __str__(self) -> str:
        return ": ".join(map(str, self.args))


def _init(self: Any, host: str, *, code: int) -> None:
    Exception.__init__(self, f"{host} is away")
    self.code = code


def _unknown(**members: object) -> Any:
    """Return an exception of a type that no other process can import."""
    names = {"__init__": _init, "__module__": "no_such_module", **members}
    return type("DbError", (Exception,), names)("host", code=1)


def sent(error: Exception) -> Any:
    """Return an exception as its caller gets it."""
    return rebuild(encode_failure(error))


@pytest.mark.parametrize("kind", [ValueError, KeyError, TwoError])
@pytest.mark.parametrize(
    "members", [{}, {"__repr__": lambda _self: "<db>"}, {"__str__": lambda _self: "text"}]
)
def test_an_argument_is_a_remote_error(kind: type[Exception], members: dict[str, object]) -> None:
    error = kind("outer", _unknown(**members))
    for again in (sent(error), sent(sent(error))):
        assert (kind, str(error), repr(error)) == (type(again), str(again), repr(again))
        outer, inner = again.args
        assert "outer" == outer
        assert RemoteError is type(inner)
        assert ("no_such_module:DbError", str(error.args[1])) == (inner.type_name, inner.message)
        assert not hasattr(again, "__notes__")


def test_an_attribute_that_was_not_sent_is_explained() -> None:
    error = TwoError("404", object())
    again = sent(error)
    assert isinstance(again.second, Repr)
    assert not hasattr(again.second, "status_code")
    with pytest.raises(AttributeError, match="'status_code': only the text of <object object"):
        _ = again.second.status_code
    for copied in (copy.deepcopy(again.second), pickle.loads(pickle.dumps(again.second))):
        assert (Repr, again.second) == (type(copied), copied)


@pytest.mark.parametrize(
    "inside",
    [
        lambda inner: [inner, 1],
        lambda inner: (1, inner),
        lambda inner: {"a": inner, "b": 1},
        lambda inner: KeyError(inner, 1),
        lambda inner: [(1, {"a": ValueError("x", inner)})],
    ],
)
def test_what_holds_one_keeps_the_others(inside: Any) -> None:
    error = ValueError("outer", inside(_unknown()))
    again = sent(error)
    assert (str(error), "outer") == (str(again), again.args[0])
    assert type(error.args[1]) is type(again.args[1])
    assert repr(error.args[1]) == repr(again.args[1])


def test_an_os_error_keeps_its_number() -> None:
    error = OSError(5, "io", _unknown())
    again = sent(error)
    assert (5, "io", str(error)) == (again.errno, again.strerror, str(again))
    assert RemoteError is type(again.filename)


def test_an_attribute_is_a_remote_error() -> None:
    error = TwoError(503, _unknown())
    assert (503, RemoteError) == (sent(error).args[0], type(sent(error).second))


def test_where_the_text_of_an_argument_is_told_it_is_its_repr() -> None:
    error = ColonError("outer", 5, _unknown())
    again = sent(error)
    assert ("outer: 5: host is away", "outer", 5) == (str(again), *again.args[:2])
    assert Repr is type(again.args[2])
    assert ("host is away", "DbError('host is away')") == (str(again.args[2]), repr(again.args[2]))


@pytest.mark.parametrize("base", [int, str, tuple, dict])
def test_a_value_of_an_unknown_class_leaves_the_others(base: type) -> None:
    names = {"__module__": "no_such_module", "__repr__": lambda _self: "<lost>"}
    error = OSError(5, "io", type("Lost", (base,), names)())
    again = sent(error)
    assert ("[Errno 5] io: <lost>", 5, "io") == (str(again), again.errno, again.strerror)
    assert (Repr, "<lost>") == (type(again.filename), repr(again.filename))


def test_one_is_itself_where_its_type_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("outer", _unknown())
    on_the_way = sent(error)
    module: Any = type(sys)("no_such_module")
    module.DbError = type(error.args[1])
    monkeypatch.setitem(sys.modules, "no_such_module", module)
    again = sent(on_the_way)
    assert (module.DbError, 1) == (type(again.args[1]), again.args[1].code)
