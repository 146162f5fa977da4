"""The blocks of the article about dynamic batching, called by handle and over HTTP."""

import asyncio

import httpx
import pytest

import pyserve as serve
from tests.seeds.article import Batched, HousePricePredictor, OneByOne, Request

pytestmark = pytest.mark.slow

HOUSES = [[rooms, 20 * rooms, 1] for rooms in range(1, 33)]
PRICES = [100_000.0 + 50_000.0 * (rooms - 1) for rooms in range(1, 33)]


async def test_without_batching_each_house_is_a_pass():
    handle = serve.run(OneByOne.bind(), name="article-single")

    for house, price in zip(HOUSES[:3], PRICES[:3], strict=True):
        answer = await handle.remote(Request(features=house))
        assert {"predictions": price, "currency": "EUR"} == answer
    assert [(3,)] * 3 == await handle.passes.remote()


@pytest.mark.parity("S-18")
@pytest.mark.parity("S-21")
@pytest.mark.parity("S-95")
async def test_a_full_batch_is_one_pass_and_the_handler_stays_as_it_is():
    """``json()`` gives columns; of a dict, lists of the batch's length are split."""
    handle = serve.run(Batched.bind(), name="article-batched")

    calls = [handle.remote(Request(features=house)) for house in HOUSES]

    expected = [{"predictions": price, "currency": "EUR"} for price in PRICES]
    assert expected == [await call for call in calls]
    assert [(32, 3)] == await handle.passes.remote()


@pytest.mark.parity("S-23")
async def test_a_small_batch_leaves_when_its_time_is_up():
    handle = serve.run(Batched.bind(), name="article-small")

    calls = [handle.remote(Request(features=house)) for house in HOUSES[:5]]

    assert PRICES[:5] == [(await call)["predictions"] for call in calls]
    assert [(5, 3)] == await handle.passes.remote()


@pytest.mark.parity("S-21")
async def test_the_printed_class_batches_http_requests():
    """One of them is not valid JSON: it fails alone, and the others do not notice."""
    handle = serve.run(HousePricePredictor.bind(), name="article-http", route_prefix="/houses")
    url = f"http://{serve.status().addresses[0]}/houses"

    async with httpx.AsyncClient(timeout=30) as client:
        bad = client.post(url, content=b'{"features": [1,')
        posts = [client.post(url, json={"features": house}) for house in HOUSES[:31]]
        refused, *answers = await asyncio.gather(bad, *posts)

    assert [{"predictions": price} for price in PRICES[:31]] == [each.json() for each in answers]
    assert 400 == refused.status_code
    rows = [shape[0] for shape in await handle.passes.remote()]
    assert 31 == sum(rows)
    assert max(rows) > 1
