"""Batches of plain HTTP requests."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request

import pyserve
from pyserve.batching import BatchOptions, make_batched
from pyserve.request import get_multiplexed_model_id
from tests.unit.replica.http.serving import Client, answer_of, serving


async def _answers(client: Client, *bodies: bytes, **request: Any) -> list[Any]:
    calls = [client.begin(body, **request) for body in bodies]
    return await asyncio.gather(*map(answer_of, calls))


async def test_a_batch_is_a_list_of_requests() -> None:
    class Doubling:
        @pyserve.batch(max_batch_size=3, batch_wait_timeout_s=10)
        async def __call__(self, requests: list[Request]) -> list[Any]:
            assert all(isinstance(each, Request) for each in requests)
            return [[2 * await each.json(), len(requests)] for each in requests]

    async with serving(Doubling()) as client:
        answers = await _answers(client, b"1", b"2", b"3")
    assert [[2, 3], [4, 3], [6, 3]] == [each.json() for each in answers]


async def test_a_batch_of_data_has_parsed_elements_and_bad_ones_do_not_come_in() -> None:
    class Doubling:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
        async def __call__(self, numbers: list[int]) -> list[Any]:
            return [[2 * each, len(numbers)] for each in numbers]

    async with serving(Doubling()) as client:
        answers = await _answers(client, b"1", b'"x"', b"{", b"2")
    assert [200, 422, 400, 200] == [each.status for each in answers]
    assert [[2, 2], [4, 2]] == [answers[0].json(), answers[3].json()]


async def test_columns_of_parameters_are_fields() -> None:
    class Adding:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
        async def __call__(self, left: list[int], right: list[int]) -> list[int]:
            return [a + b for a, b in zip(left, right, strict=True)]

    async with serving(Adding()) as client:
        answers = await _answers(client, b'{"left":1,"right":2}', b'{"right":4,"left":3}')
    assert [3, 7] == [each.json() for each in answers]


async def test_a_function_may_be_batched() -> None:
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
    async def double(numbers: list[int]) -> list[int]:
        return [2 * each for each in numbers]

    async with serving(double) as client:
        answers = await _answers(client, b"1", b"2")
    assert [2, 4] == [each.json() for each in answers]


async def test_an_exception_for_one_item_fails_one_request() -> None:
    class Choosy:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
        async def __call__(self, requests: list[Any]) -> list[Any]:
            return ["fine", ValueError("not this one")]

    async with serving(Choosy()) as client:
        first, second = await _answers(client, b"", b"")
    assert (b"fine", 500) == (first.body, second.status)


async def test_a_batched_generator_streams_to_each() -> None:
    class Counting:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
        async def __call__(self, starts: list[int]) -> AsyncIterator[list[str]]:
            for step in range(3):
                yield [f"{start + step} " for start in starts]

    async with serving(Counting()) as client:
        answers = await _answers(client, b"1", b"10")
    assert [b"1 2 3 ", b"10 11 12 "] == [each.body for each in answers]


async def test_a_batch_has_one_model() -> None:
    class Models:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.01)
        async def __call__(self, requests: list[Request]) -> list[Any]:
            return [get_multiplexed_model_id()] * len(requests)

    async with serving(Models()) as client:
        calls = [
            client.begin(headers={"serve_multiplexed_model_id": model}) for model in ("a", "b")
        ]
        answers = await asyncio.gather(*map(answer_of, calls))
    assert [b"a", b"b"] == [each.body for each in answers]


class House:
    """The handler of the article."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def __call__(self, request: Request) -> dict[str, Any]:
        data = await request.json()
        self.seen.append(data)
        return {"predictions": [sum(each) for each in data["features"]], "currency": "EUR"}


@pytest.mark.parity("S-21")
async def test_the_articles_handler_gets_columns_and_one_bad_body_fails_alone() -> None:
    batched = {
        "__call__": make_batched(
            House.__call__, BatchOptions(max_batch_size=4, batch_wait_timeout_s=10)
        )
    }
    house = House()
    async with serving(house, batched=batched) as client:
        answers = await _answers(
            client,
            b'{"features":[1,2]}',
            b"{",
            b'{"features":[3,4]}',
            b'{"other":1}',
        )
    assert [{"features": [[1, 2], [3, 4]]}] == house.seen
    assert [200, 400, 200, 400] == [each.status for each in answers]
    assert {"predictions": 3, "currency": "EUR"} == answers[0].json()
    assert {"predictions": 7, "currency": "EUR"} == answers[2].json()
    assert "this request has the keys ['other']" in answers[3].json()["detail"]
