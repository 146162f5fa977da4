"""What calls between processes of a mesh carry beside what their callers say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyserve import aio
from pyserve.observe.delays import PROCESS_DELAYS
from pyserve.request import CURRENT
from pyserve.routing.native_caller import outgoing
from tests.unit.routing.observed import PATH, observed

ASKED: Any = SimpleNamespace(call=SimpleNamespace(is_asked=True))
OTHER: Any = SimpleNamespace(call=SimpleNamespace(is_asked=False))


@pytest.fixture
def answers_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS_DELAYS, "is_on", True)


@pytest.mark.usefixtures("answers_calls")
@pytest.mark.parametrize(
    ("request_made", "carried"), [(ASKED, (("x-pyserve-explain", "1"),)), (OTHER, ()), (None, ())]
)
def test_a_call_of_a_request_that_is_asked_for_is_asked_for(request_made: Any, carried: Any):
    token = CURRENT.set(request_made)
    try:
        assert carried == outgoing()
    finally:
        CURRENT.reset(token)


def test_where_nobody_can_ask_nothing_is_carried():
    token = CURRENT.set(ASKED)
    try:
        assert () == outgoing()
    finally:
        CURRENT.reset(token)


@pytest.mark.usefixtures("answers_calls")
async def test_a_channel_passes_it_on_to_the_replica():
    async with observed() as opened:
        plain: Any = aio.insecure_channel(opened.address)
        async with aio.Channel(plain._native, outgoing=outgoing) as channel:
            call: Any = channel.unary_unary(PATH)
            token = CURRENT.set(ASKED)
            await call(b"x", timeout=30)
            CURRENT.reset(token)
            await call(b"x", timeout=30)
        await plain.close()
        assert [True, False] == [each.is_asked for each in opened.calls]
