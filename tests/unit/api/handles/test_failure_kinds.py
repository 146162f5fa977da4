"""What exceptions carry of subclasses, named tuples, dataclasses and values of other libraries."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import ipaddress
import time
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import attrs
import grpc.aio
import pytest

import pyserve
from pyserve.api.handles.failures import FAILURE_KEY, encode_failure, rebuild
from pyserve.api.handles.outgoing import error_of
from pyserve.errors import Abort

DAY = datetime.datetime(2026, 10, 25, 2, 30)


class Flags(enum.Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: int


class Text(str):
    """As template engines and databases have them."""

    __slots__ = ()


class Number(int):
    pass


class Row(dict[str, object]):
    def __init__(self, *_: object) -> None:
        raise AssertionError("constructors do not run")


class Marked(list[int]):
    pass


class Odd(list[int]):
    def __iter__(self) -> Any:
        raise RuntimeError("no")


@dataclasses.dataclass
class Detail:
    code: int
    of: Point
    more: list[Any] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.code != 1, "it does not run where the exception arrives"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    code: int


def row() -> Row:
    made = Row.__new__(Row)
    made["a"] = 1
    return made


def marked() -> Marked:
    made = Marked([1, 2])
    made.__dict__["why"] = "new"
    return made


def sent(error: Exception) -> Exception:
    """Return an exception as its caller gets it, over a deployment between them."""
    return rebuild(encode_failure(rebuild(encode_failure(error))))


@pytest.mark.parametrize(
    "value",
    [
        Flags.A,
        Flags.A | Flags.B,
        Flags(0),
        Point(1, 2),
        Text("a"),
        Number(3),
        row(),
        collections.OrderedDict({"b": 1, "a": [2]}),
        collections.Counter("aab"),
        collections.defaultdict(None, {("a", 1): 1}),
        collections.deque(["properties", 0]),
        Detail(3, Point(1, 2), [Frozen(4)]),
        Frozen(4),
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_network("fe80::/10"),
        DAY.replace(fold=1),
        DAY.replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime.time(1, 2, tzinfo=datetime.UTC, fold=1),
        [Point(1, 2), {"a": Text("b")}],
        int,
        Point,
    ],
    ids=repr,
)
def test_a_value_arrives_as_what_it_is(value: object) -> None:
    (again,) = sent(ValueError(value)).args
    assert type(value) is type(again)
    assert (value, repr(value)) == (again, repr(again))


def test_what_a_subclass_has_besides_arrives() -> None:
    again = sent(ValueError(marked())).args[0]
    assert (Marked, [1, 2], "new") == (type(again), list(again), again.why)
    odd = sent(ValueError(Odd([1, 2]))).args[0]
    assert (Odd, 2, 1) == (type(odd), len(odd), odd[0])


def test_where_a_class_is_not_to_be_had_its_base_arrives() -> None:
    class Local(str):
        __slots__ = ()

    assert ("a", str) == (again := sent(ValueError(Local("a"))).args[0], type(again))
    error: Any = ValueError("late")
    error.when = time.gmtime(0)
    assert (1970, 1, 1) == vars(sent(error))["when"][:3]


@attrs.define
class AttrsError(Exception):
    code: int
    why: str = "none"


@attrs.frozen(kw_only=True)
class FrozenAttrsError(Exception):
    code: int
    why: str = "none"


@attrs.define(auto_exc=True, slots=False, kw_only=True)
class KeywordAttrsError(Exception):
    code: int
    why: str = "none"


@pytest.mark.parametrize("kind", [AttrsError, FrozenAttrsError, KeywordAttrsError])
def test_exceptions_of_attrs_arrive(kind: Any) -> None:
    error = kind(code=3)
    again: Any = sent(error)
    assert (kind, 3, "none") == (type(again), again.code, again.why)
    assert (str(error), error.args) == (str(again), again.args)


def test_an_error_of_grpc_keeps_its_metadata() -> None:
    leading, trailing = grpc.aio.Metadata(("a", "b")), grpc.aio.Metadata(("c-bin", b"\0"))
    again: Any = sent(grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, leading, trailing, "none"))
    assert (grpc.StatusCode.NOT_FOUND, "none") == (again.code(), again.details())
    assert (leading, trailing) == (again.initial_metadata(), again.trailing_metadata())


class NoDigit(pyserve.Abort):
    def __init__(self, digit: int) -> None:
        super().__init__(grpc.StatusCode.NOT_FOUND, f"no {digit}", (("why", "7"),))
        self.digit = digit


class Route:
    key, path = "default/Model", "/default.Model/call"


@pytest.mark.parametrize("error", [NoDigit(7), Abort(grpc.StatusCode.ABORTED, "why")])
def test_an_abort_keeps_its_type(error: Abort) -> None:
    route: Any = Route
    number = error.code.value[0]
    trailers = (*error.trailing_metadata, (FAILURE_KEY, encode_failure(error)))
    again = error_of(route, number, error.details, trailers)
    assert (type(error), str(error)) == (type(again), str(again))
    assert vars(error) == {key: each for key, each in vars(again).items() if key in vars(error)}


def test_a_type_that_is_not_to_be_had_is_an_abort() -> None:
    class Local(Abort):
        pass

    error = Local(grpc.StatusCode.ABORTED, "why")
    route: Any = Route
    again = error_of(route, 10, "why", ((FAILURE_KEY, encode_failure(error)),))
    assert (Abort, "ABORTED: why") == (type(again), str(again))


@pytest.mark.parametrize("broken", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_an_exception_whose_text_leaves_the_process_arrives(broken: BaseException) -> None:
    class Leaving(Exception):
        def __str__(self) -> str:
            raise broken

    assert f"its __str__ raised {type(broken).__name__}" in str(sent(Leaving()))
