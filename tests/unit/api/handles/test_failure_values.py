"""Exceptions keep their type, whatever they carry; what cannot be sent arrives as its repr."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import fractions
import http
import pathlib
import pickle
import sys
import uuid
from typing import Any
from zoneinfo import ZoneInfo

import cloudpickle
import numpy as np
import pydantic
import pytest

from pyserve.api.handles.failures import FAILURE_BYTES_MAX, RemoteTraceback, encode_failure, rebuild
from pyserve.errors import BatchError, RemoteError

DAY = datetime.datetime(2026, 11, 28, 12, 30, 1, 5)


class Colour(enum.Enum):
    RED = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Opaque:
    """Can be neither sent nor compared."""

    def __repr__(self) -> str:
        return "<opaque>"

    def __str__(self) -> str:
        return "an opaque thing"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


class OutOfStock(Exception):
    """Takes keywords only, and builds its text."""

    def __init__(self, *, item: object) -> None:
        super().__init__(f"no {item}")
        self.item = item


class Model(pydantic.BaseModel):
    number: int
    text: str = ""

    @pydantic.field_validator("text")
    @classmethod
    def refuse(cls, value: str) -> str:
        if value == "no":
            raise ValueError("not that")
        return value


def sent(error: Exception) -> Exception:
    """Return an exception as its caller gets it."""
    try:
        raise error
    except Exception as caught:
        data = encode_failure(caught)
    assert len(data) <= FAILURE_BYTES_MAX
    return rebuild(data)


VALUES: list[Any] = [
    2**70,
    -(2**64),
    1 + 2j,
    {1, 2},
    frozenset({"a"}),
    bytearray(b"abc"),
    uuid.UUID(int=5),
    DAY,
    DAY.replace(tzinfo=datetime.UTC),
    DAY.date(),
    DAY.time(),
    datetime.timedelta(days=-1, microseconds=3),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    pathlib.Path("/a/b"),
    Colour.RED,
    http.HTTPStatus.NOT_FOUND,
    np.int64(1),
    np.float32(1.5),
    np.bool_(True),
    np.str_("text"),
    np.datetime64("2026-11-28"),
    {1: "one", (2, 3): None},
    [np.int8(-1), {"when": DAY.date()}, (Colour.RED,)],
]


@pytest.mark.parametrize("kind", [KeyError, ValueError, RuntimeError, LookupError])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_of_common_kinds_arrive_as_they_are(kind: type[Exception], value: Any) -> None:
    error = kind(value)
    rebuilt = sent(error)
    assert kind is type(rebuilt)
    assert (value,) == rebuilt.args
    assert type(value) is type(rebuilt.args[0])
    assert str(error) == str(rebuilt)
    assert not hasattr(rebuilt, "__notes__")


@pytest.mark.parametrize("kind", [KeyError, ValueError, OSError])
@pytest.mark.parametrize(
    "value",
    [
        Opaque(),
        [Opaque(), 1],
        {"a": Opaque()},
        Flags.A | Flags.B,
        DAY.replace(tzinfo=ZoneInfo("Europe/Zurich")).tzinfo,
        lambda: 5,
        Opaque,
        sys,
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_arrive_as_their_repr(kind: type[Exception], value: Any) -> None:
    error = kind(value)
    rebuilt = sent(error)
    assert kind is type(rebuilt)
    assert str(error) == str(rebuilt)
    assert repr(value) == repr(rebuilt.args[0])


def test_a_repr_is_a_text_that_travels_on() -> None:
    rebuilt = sent(sent(KeyError(Opaque())))
    (value,) = rebuilt.args
    assert "<opaque>" == value
    assert ("an opaque thing", "<opaque>") == (str(value), repr(value))
    again = pickle.loads(pickle.dumps(value))
    assert ("an opaque thing", "<opaque>") == (str(again), repr(again))


@pytest.mark.parametrize("kind", [KeyError, ValueError])
def test_a_value_that_cannot_describe_itself_leaves_the_type(kind: type[Exception]) -> None:
    assert kind is type(sent(kind(Hostile(), 1)))


def test_attributes_and_keywords_arrive() -> None:
    rebuilt = sent(OutOfStock(item=np.int64(3)))
    assert isinstance(rebuilt, OutOfStock)
    assert (3, "no 3") == (rebuilt.item, str(rebuilt))
    rebuilt = sent(OutOfStock(item=Opaque()))
    assert isinstance(rebuilt, OutOfStock)
    assert "<opaque>" == rebuilt.item
    assert "no an opaque thing" == str(rebuilt)


def test_exceptions_in_exceptions_keep_their_types() -> None:
    rebuilt = sent(RuntimeError(KeyError(uuid.UUID(int=1))))
    assert RuntimeError is type(rebuilt)
    assert KeyError is type(rebuilt.args[0])
    assert (uuid.UUID(int=1),) == rebuilt.args[0].args


def test_a_group_keeps_its_members() -> None:
    group = ExceptionGroup(
        "several", [KeyError(np.int64(1)), ExceptionGroup("x", [OSError(2, "no")])]
    )
    rebuilt = sent(group)
    assert isinstance(rebuilt, ExceptionGroup)
    assert str(group) == str(rebuilt)
    first, second = rebuilt.exceptions
    assert (KeyError, (1,)) == (type(first), first.args)
    assert isinstance(second, ExceptionGroup)
    assert FileNotFoundError is type(second.exceptions[0])
    matched, rest = rebuilt.split(KeyError)
    assert matched is not None
    assert rest is not None


def test_the_traceback_of_a_group_is_that_of_its_members_too() -> None:
    """So have the groups that ``except*`` and ``split`` make of some members."""
    rebuilt = sent(ExceptionGroup("several", [KeyError(1), ExceptionGroup("x", [OSError(2, "")])]))
    assert isinstance(rebuilt, ExceptionGroup)
    first, second = rebuilt.exceptions
    assert isinstance(second, ExceptionGroup)
    trace = vars(rebuilt)["remote_traceback"]
    assert "FileNotFoundError: [Errno 2]" in trace
    for member in (first, second, second.exceptions[0]):
        # No cause: the printed traceback of a group has those of its members.
        assert (trace, None) == (vars(member)["remote_traceback"], member.__cause__)
    for part in (*rebuilt.split(KeyError), rebuilt.subgroup(KeyError), second.subgroup(OSError)):
        assert part is not None
        assert trace == vars(part)["remote_traceback"]
    for part in rebuilt.split(KeyError):
        assert part is not None
        assert isinstance(part.__cause__, RemoteTraceback)
        again = part.subgroup(lambda error: isinstance(error, KeyError | OSError))
        assert again is not None
        assert trace == vars(again)["remote_traceback"]
    # In an argument, too.
    assert sent(ValueError(KeyError(1))).args[0].__cause__ is None


def test_a_group_that_goes_on_is_as_it_came() -> None:
    rebuilt = sent(ExceptionGroup("several", [KeyError(1), ValueError(2)]))
    assert isinstance(rebuilt, ExceptionGroup)
    for again in (sent(rebuilt), pickle.loads(pickle.dumps(rebuilt)), copy.copy(rebuilt)):
        assert ExceptionGroup is type(again)
        assert str(rebuilt) == str(again)
        part = again.subgroup(KeyError)
        assert "ValueError: 2" in vars(part)["remote_traceback"]


class Refined(ExceptionGroup[Exception]):
    """A group whose parts are of its type."""

    def derive(self, members: Any) -> Refined:
        return Refined(self.message, members)


def test_a_group_that_makes_its_own_parts_does_so() -> None:
    rebuilt = sent(Refined("several", [KeyError(1), ValueError(2)]))
    assert isinstance(rebuilt, Refined)
    assert Refined is type(rebuilt.subgroup(KeyError))


def test_a_member_that_is_not_known_here_leaves_the_group() -> None:
    unknown = type("Unknown", (Exception,), {"__module__": "no_such_module"})
    rebuilt = sent(ExceptionGroup("several", [unknown("why"), ValueError(1)]))
    assert isinstance(rebuilt, ExceptionGroup)
    assert [RemoteError, ValueError] == [type(each) for each in rebuilt.exceptions]
    assert "Traceback" not in str(rebuilt.exceptions[0])


@pytest.mark.parametrize(
    "given", [{"number": "x"}, {"number": Opaque()}, {"number": 1, "text": "no"}, {}], ids=repr
)
def test_a_validation_error_of_pydantic_can_be_read(given: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        Model.model_validate(given)
    rebuilt = sent(caught.value)
    assert isinstance(rebuilt, pydantic.ValidationError)
    assert [each["loc"] for each in caught.value.errors()] == [
        each["loc"] for each in rebuilt.errors()
    ]
    assert [each["msg"] for each in caught.value.errors()] == [
        each["msg"] for each in rebuilt.errors()
    ]


def test_an_error_of_ours_with_a_cause_keeps_its_type() -> None:
    rebuilt = sent(BatchError("an item is too large"))
    assert BatchError is type(rebuilt)


@pytest.mark.parametrize("width", [1, 2, 50])
def test_what_holds_itself_is_sent_in_bounds(width: int) -> None:
    error = ValueError()
    error.args = (error,) * width
    assert ValueError is type(sent(error))
    cycle: list[object] = []
    cycle += [cycle] * width
    assert KeyError is type(sent(KeyError(cycle)))


def test_a_group_that_is_too_large_keeps_its_type_or_says_so() -> None:
    group = ExceptionGroup("many", [ValueError("x" * 1000) for _ in range(100)])
    rebuilt = sent(group)
    assert "many (100 sub-exceptions)" in str(rebuilt)


def test_a_class_that_travels_with_the_code_is_found_where_it_has_come_to() -> None:
    """Also where it went through a process that has not got it."""
    source = "class OutOfTea(Exception):\n    pass\n"
    names: dict[str, Any] = {"__name__": "__main__of_a_script"}
    exec(source, names)  # As a script defines it: no module has it.
    kind = names["OutOfTea"]
    there = cloudpickle.loads(cloudpickle.dumps(kind))
    rebuilt = sent(there("none", np.int64(2)))
    assert kind is type(rebuilt)
    assert ("none", 2) == rebuilt.args


def test_what_was_unknown_on_the_way_is_known_again_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = type(sys)("a_script")
    kind = type("Lost", (Exception,), {"__module__": "a_script"})
    on_the_way = sent(kind("where", 5))
    assert isinstance(on_the_way, RemoteError)
    module.Lost = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_script", module)
    rebuilt = sent(on_the_way)
    assert kind is type(rebuilt)
    assert ("where", 5) == rebuilt.args


def test_the_members_of_a_group_are_sent_once() -> None:
    group = ExceptionGroup("several", [ValueError(f"{number:0100}") for number in range(12)])
    rebuilt = sent(group)
    assert isinstance(rebuilt, ExceptionGroup)
    assert [str(each) for each in group.exceptions] == [str(each) for each in rebuilt.exceptions]
