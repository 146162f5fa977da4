"""Responses and references as arguments of other calls."""

import pytest

import pyserve
from tests.contract.handles.apps import LARGE, Refused


async def test_a_response_is_an_argument(echo, handles):
    assert "abc!" == await echo.say.remote(echo.say.remote("abc!"))
    single = handles("Single")
    assert 3 == await single.remote(single.remote(single.remote(0)))


async def test_large_results_go_on_whole(echo, front):
    assert [(LARGE, 7), (0, 0)] == await echo.sizes.remote(echo.large.remote(7))
    assert [(LARGE, 9), (0, 0)] == await front.large_through.remote(9)
    assert bytes([5]) * LARGE == await echo.large.remote(5)


async def test_many_responses_keep_their_order(echo):
    pieces = [echo.large.remote(fill) if fill % 2 else bytes([fill]) for fill in range(8)]

    sizes = await echo.sizes.remote(*pieces, last=echo.large.remote(99))

    assert [(LARGE if n % 2 else 1, n) for n in range(8)] + [(LARGE, 99)] == sizes


async def test_one_failed_input_fails_the_call_with_its_error(echo):
    with pytest.raises(Refused, match="bad input"):
        await echo.sizes.remote(echo.large.remote(1), echo.fail.remote("bad input"))


async def test_a_reference_can_be_used_more_than_once(echo):
    reference = await echo.large.remote(3)._to_object_ref()

    for _ in range(2):
        assert [(LARGE, 3), (0, 0)] == await echo.sizes.remote(reference)
    assert LARGE == len(await reference)


async def test_values_that_are_put_travel_like_results(echo):
    reference = pyserve.put(bytes([4]) * LARGE)

    assert [(LARGE, 4), (0, 0)] == await echo.sizes.remote(reference)


def test_get_takes_one_or_a_list(echo):
    assert "x" == pyserve.get(echo.say.remote("x"))
    assert ["a", "b"] == pyserve.get([echo.say.remote("a"), echo.say.remote("b")])


async def test_without_references_large_results_come_all_the_same(echo):
    by_value = echo.options(_by_reference=False)

    assert [(LARGE, 2), (0, 0)] == await by_value.sizes.remote(by_value.large.remote(2))


async def test_nested_responses_are_refused_and_nested_references_stay(echo):
    with pytest.raises(pyserve.PyserveError):
        await echo.remote([echo.say.remote("x")])
    reference = await echo.say.remote("x")._to_object_ref()
    assert ["list"] == await echo.first.remote([reference])
