"""An exception that a batched function returns is its answer; one that it raises is not."""

import pytest

import pyserve
from pyserve.observe.failures import ANSWER_MARK


class Shop:
    @pyserve.batch(max_batch_size=1)
    async def sell(self, items: list[str]) -> list[str | Exception]:
        if "stolen" in items:
            raise LookupError("stolen")
        return [LookupError(item) for item in items]

    @pyserve.batch(max_batch_size=1)
    async def count(self, items: list[str]):
        yield items
        if "stolen" in items:
            raise LookupError("stolen")
        yield [LookupError(item) for item in items]


@pytest.mark.parametrize(("item", "is_answer"), [("tea", True), ("stolen", False)])
async def test_what_is_returned_is_told_from_what_is_raised(item: str, is_answer: bool):
    with pytest.raises(LookupError, match=item) as one:
        await Shop().sell(item)
    with pytest.raises(LookupError, match=item) as stream:
        _ = [each async for each in Shop().count(item)]

    assert [is_answer, is_answer] == [ANSWER_MARK in vars(each.value) for each in (one, stream)]
