"""``@pyserve.multiplexed`` on methods and functions."""

import asyncio
from typing import Any

import pytest

import pyserve
from pyserve.errors import OptionError, UsageError
from pyserve.multiplexing import PROCESS_DIRECTORY, close_all, preload_all
from pyserve.request import CURRENT, Request


class Translate:
    """Two kinds of models, each with its own cache."""

    def __init__(self) -> None:
        self.loads: list[str] = []

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def get_model(self, model_id: str) -> str:
        self.loads.append(model_id)
        return f"model {model_id}"

    @pyserve.multiplexed
    async def get_tokenizer(self, model_id: str) -> str:
        return f"tokenizer {model_id}"


@pytest.mark.parity("S-27")
async def test_the_model_not_used_for_longest_is_evicted():
    translate = Translate()
    for model_id in ("v1", "v2", "v3", "v2", "v1"):
        assert f"model {model_id}" == await translate.get_model(model_id)

    assert ["v1", "v2", "v3", "v1"] == translate.loads
    assert (1, 4, 2) == (
        translate.get_model.stats().hits,
        translate.get_model.stats().loads,
        translate.get_model.stats().evictions,
    )


@pytest.mark.parity("S-27")
async def test_minus_one_is_no_limit():
    loads = []

    @pyserve.multiplexed(max_num_models_per_replica=-1)
    async def get_model(model_id: str) -> str:
        loads.append(model_id)
        return model_id

    for _ in range(2):
        for index in range(50):
            await get_model(str(index))

    assert 50 == len(loads)
    await get_model.close()


@pytest.mark.parity("S-27")
async def test_the_default_is_three_models():
    translate = Translate()
    for model_id in "abcd":
        await translate.get_tokenizer(model_id)

    assert 3 == translate.get_tokenizer.stats().models


async def test_methods_and_instances_do_not_share_models():
    """Two decorated methods of one class have two caches, with the same ids in them."""
    first, second = Translate(), Translate()

    assert "model a" == await first.get_model("a")
    assert "tokenizer a" == await first.get_tokenizer("a")
    await second.get_model("a")
    assert (["a"], ["a"]) == (first.loads, second.loads)


async def test_an_override_may_call_the_method_that_it_overrides():
    class Upper(Translate):
        @pyserve.multiplexed(max_num_models_per_replica=1)
        async def get_model(self, model_id: str) -> str:
            return (await super().get_model(model_id)).upper()

    upper = Upper()
    for model_id in "abab":
        assert f"MODEL {model_id.upper()}" == await upper.get_model(model_id)

    assert ["a", "b"] == upper.loads


async def test_without_an_id_it_is_the_requests():
    translate = Translate()
    token = CURRENT.set(Request(multiplexed_model_id="v7"))
    try:
        assert "model v7" == await translate.get_model()
        assert "model v8" == await translate.get_model(model_id="v8")
    finally:
        CURRENT.reset(token)


@pytest.mark.parametrize("model_id", ["", None])
async def test_without_any_id_the_message_says_how_to_send_one(model_id: Any):
    with pytest.raises(UsageError) as caught:
        await Translate().get_model(model_id)

    assert (
        "this request names no model, and needs one: send its id in the header "
        "serve_multiplexed_model_id (metadata multiplexed_model_id of gRPC, "
        "handle.options(multiplexed_model_id=...) of a handle)"
    ) == str(caught.value)


async def test_an_id_is_text():
    with pytest.raises(UsageError, match="a model id is a str, not 7"):
        await Translate().get_model(7)  # type: ignore[arg-type]


@pytest.mark.parity("S-34")
async def test_models_to_preload_are_there_before_the_first_request():
    class Warm(Translate):
        @pyserve.multiplexed(preload=["a", "b"])
        async def get_model(self, model_id: str) -> str:
            self.loads.append(model_id)
            return model_id

    warm = Warm()
    await preload_all(warm)
    assert ["a", "b"] == sorted(warm.loads)
    await warm.get_model("a")
    assert 2 == len(warm.loads)


@pytest.mark.parity("S-34")
async def test_pinned_models_stay_and_unloaded_ones_go():
    translate = Translate()
    await translate.get_model.pin("a")
    for model_id in "bcd":
        await translate.get_model(model_id)
    await translate.get_model("a")
    assert ["a", "b", "c", "d"] == translate.loads

    translate.get_model.unpin("a")
    await translate.get_model.unload("d")
    assert 1 == translate.get_model.stats().models
    await translate.get_model.preload(["d"])
    assert ["a", "b", "c", "d", "d"] == translate.loads


async def test_what_an_instance_has_is_in_the_directory_until_it_is_closed():
    translate = Translate()
    await translate.get_model("only-here")
    assert "only-here" in PROCESS_DIRECTORY.models()

    await close_all(translate)
    assert "only-here" not in PROCESS_DIRECTORY.models()


def test_another_loop_begins_with_an_empty_cache():
    """Models belong to the loop that loaded them, e.g. because they hold connections."""
    translate = Translate()
    for _ in range(2):
        asyncio.run(translate.get_model("a"))  # type: ignore[arg-type]

    assert ["a", "a"] == translate.loads


async def test_two_loops_at_once_are_refused():
    translate = Translate()
    await translate.get_model("a")

    def use_another_loop() -> None:
        asyncio.run(translate.get_model("b"))  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="is used by two event loops at once"):
        await asyncio.to_thread(use_another_loop)


async def test_sizes_come_from_the_model_or_from_size_fn():
    class Sized:
        nbytes = 30

    class Measured:
        def size_bytes(self) -> int:
            return 40

    made = {"sized": Sized(), "measured": Measured(), "raw": b"12345", "none": object()}

    @pyserve.multiplexed(max_num_models_per_replica=-1, max_bytes=200)
    async def get_model(model_id: str) -> object:
        return made[model_id]

    @pyserve.multiplexed(max_bytes=100, size_fn=lambda model: 7)
    async def get_any(model_id: str) -> object:
        return made[model_id]

    for model_id in ("sized", "measured", "raw"):
        await get_model(model_id)
    assert 75 == get_model.stats().bytes_used
    await get_any("none")
    assert 7 == get_any.stats().bytes_used
    with pytest.raises(OptionError, match="object does not say its size"):
        await get_model("none")
    await get_model.close()
    await get_any.close()


async def _loader(model_id: str) -> str:
    return model_id


async def _two(model_id: str, revision: str, extra: str) -> str:
    return model_id


async def _star(*ids: str) -> str:
    return ids[0]


def _plain(model_id: str) -> str:
    return model_id


async def _generator(model_id: str) -> Any:
    yield model_id


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_plain, "it is not an `async def`; write `async def _plain(self, model_id: str)`"),
        (_generator, "it is not an `async def`"),
        (_two, "it takes (model_id: str, revision: str, extra: str); write one model id"),
        (_star, "it takes (*ids: str); write one model id"),
    ],
)
def test_what_is_no_loader_is_refused_with_its_place(function: Any, text: str):
    with pytest.raises(UsageError) as caught:
        pyserve.multiplexed(function)

    line = function.__code__.co_firstlineno
    assert f"on {function.__name__} ({__file__}:{line}): " in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_num_models_per_replica": 0}, "max_num_models_per_replica: 0 is not allowed"),
        ({"policy": "mru"}, "write 'lru' or 'gdsf'"),
        ({"preload": "a"}, "write a list of model ids, like ['a']"),
        ({"preload": ["a", ""]}, "write a list of model ids, like ['a']"),
        ({"preload": ["a", "b", "c", "d"]}, "preload names 4 models"),
        ({"preload": ["a"]}, "for a function write `await _loader.preload([...])`"),
    ],
)
def test_options_are_checked_where_they_are_written(options: dict[str, Any], text: str):
    with pytest.raises(UsageError) as caught:
        pyserve.multiplexed(**options)(_loader)

    assert text in str(caught.value)
