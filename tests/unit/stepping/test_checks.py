"""What ``@pyserve.continuous`` refuses when a class is imported."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.errors import KindError, OptionTypeError
from pyserve.stepping.decorator import continuous
from tests.unit.stepping.engines import Calling
from tests.unit.stepping.models import Counting, Snapping, Work

PLAIN = ["release", "cost", "bound", "key", "client", "priority", "preempt"]


async def _awaiting(_self: object, _what: object) -> Any:
    return None


async def _async_generator(_self: object, _what: object) -> Any:
    yield None


def _generator(_self: object, _what: object) -> Any:
    yield None


def declare(parent: type, **methods: Any) -> type:
    return continuous(type("Model", (parent,), methods))


@pytest.mark.parametrize("method", PLAIN)
def test_a_method_that_nothing_awaits_is_plain(method: str) -> None:
    with pytest.raises(KindError, match=rf"on Model: its {method} is async.*plain def"):
        declare(Snapping, **{method: _awaiting})


@pytest.mark.parametrize("method", [*PLAIN, "step", "setup"])
@pytest.mark.parametrize("function", [_async_generator, _generator])
def test_a_method_that_nothing_iterates_returns(method: str, function: Any) -> None:
    with pytest.raises(KindError, match=rf"on Model: its {method} yields.*return its result"):
        declare(Snapping, **{method: function})


def test_a_static_one_is_no_other() -> None:
    async def key(_work: Work) -> int:
        return 1

    with pytest.raises(KindError, match="its key is async"):
        declare(Counting, key=staticmethod(key))


def test_the_release_of_an_engine_may_start_a_task() -> None:
    with pytest.raises(KindError, match=r"its release is async.*may start a task"):
        declare(Calling, release=_awaiting)


@pytest.mark.parametrize("method", ["admit", "resume", "step", "setup"])
def test_these_may_be_async(method: str) -> None:
    declare(Snapping, **{method: _awaiting})


@pytest.mark.parametrize("method", ["admit", "resume"])
def test_a_state_may_be_a_generator(method: str) -> None:
    declare(Snapping, **{method: _generator})


def test_a_wrong_option_names_the_nearest() -> None:
    with pytest.raises(
        OptionTypeError, match=r"@pyserve.continuous has no option 'max_runing'.*'max_running'\?"
    ):
        continuous(max_runing=3)  # type: ignore[call-overload]
    with pytest.raises(OptionTypeError, match="no option 'foo'; there is: max_running, budget"):
        continuous(foo=1)  # type: ignore[call-overload]


def test_an_attribute_of_such_a_name_is_something_else() -> None:
    declare(Counting, client=object())
