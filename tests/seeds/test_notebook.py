"""The cells of the notebook."""

import ast
import asyncio
import textwrap

import httpx
import pytest

import pyserve as serve
from tests.seeds import video
from tests.seeds.notebook import (
    ModelServer,
    OptimizedPipeline,
    PrintedModelServer,
    SimpleBatchedModel,
    SimpleModel,
)

pytestmark = pytest.mark.slow


@pytest.mark.parity("S-02")
async def test_a_handle_is_ready_when_run_returns_inside_a_running_loop():
    handle = serve.run(SimpleModel.bind(), name="notebook-simple")

    assert 2 == await handle.run.remote(1)


@pytest.mark.parity("S-20")
async def test_eight_calls_are_two_batches_of_four_answered_in_order():
    handle = serve.run(SimpleBatchedModel.bind(), name="notebook-batched")

    responses = [handle.run.remote(sample) for sample in range(8)]

    for sample, response in enumerate(responses):
        assert sample * 2 == await response
    assert [[0, 1, 2, 3], [4, 5, 6, 7]] == await handle.batches.remote()


@pytest.mark.parity("S-27")
@pytest.mark.parity("S-29")
async def test_the_third_model_makes_room_by_dropping_the_one_used_longest_ago():
    """Two fit: v1, v2, v3 evicts v1; v2 is still there, v1 is loaded again."""
    handle = serve.run(ModelServer.bind(), name="notebook-models")

    for version in ("v1", "v2", "v3", "v2", "v1"):
        model_id = f"model_{version}"
        answer = await handle.options(multiplexed_model_id=model_id).remote({"data": [1, 2, 3]})
        assert f"{model_id} saw ['data']" == answer

    assert ["model_v1", "model_v2", "model_v3", "model_v1"] == await handle.loads.remote()


@pytest.mark.parity("S-27")
@pytest.mark.parity("S-30")
async def test_http_requests_name_their_model_in_a_header():
    """Two fit: v3 comes over HTTP and makes room by dropping v1."""
    handle = serve.run(PrintedModelServer.bind(), name="notebook-http", route_prefix="/notebook")
    url = f"http://{serve.status().addresses[0]}/notebook"

    first = await handle.options(multiplexed_model_id="model_v1").remote({"simple": "request"})
    async with httpx.AsyncClient(timeout=30) as client:
        responses = [
            await client.post(
                url, json={"data": [1, 2, 3]}, headers={"serve_multiplexed_model_id": model_id}
            )
            for model_id in ("model_v2", "model_v3", "model_v2", "model_v1")
        ]
    answers = [each.text for each in responses]

    assert "prediction from model_v1" == first
    assert [f"prediction from model_{v}" for v in ("v2", "v3", "v2", "v1")] == answers
    assert ["model_v1", "model_v2", "model_v3", "model_v1"] == await handle.loads.remote()


def test_the_printed_prediction_does_not_compile():
    """A plain ``def`` cannot await, so the twin's ``predict`` is ``async def``."""
    printed = """
        def predict(self, model, request):
            await asyncio.sleep(0.05)
            return model
        """
    with pytest.raises(SyntaxError, match="outside async function"):
        compile(textwrap.dedent(printed), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parity("S-37")
async def test_a_batch_has_one_model_though_calls_of_several_come_mixed():
    handle = serve.run(OptimizedPipeline.bind(), name="notebook-combined")
    models = [f"model_{number % 3}" for number in range(24)]

    answers = await asyncio.gather(
        *(
            handle.options(multiplexed_model_id=model).remote(number)
            for number, model in enumerate(models)
        )
    )

    assert [(model, number, 8) for number, model in enumerate(models)] == answers


@pytest.mark.parity("S-41")
@pytest.mark.parametrize("application", ["naive", "streaming"])
async def test_both_orchestrations_return_the_whole_film_in_order(application: str):
    handle = serve.run(getattr(video, application), name=f"notebook-{application}")

    path, frames = await handle.run.remote("https://example.org/100", "out.mp4")

    assert "out.mp4" == path
    assert list(range(100)) == frames


async def test_cells_run_where_their_classes_cannot_be_imported():
    """In a notebook a class lives in no module, and cells await at top level."""
    cells = [
        "import pyserve as serve",
        """
        @serve.deployment
        class Negated:
            @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.1)
            async def run(self, samples):
                return [-sample for sample in samples]
        """,
        "handle = serve.run(Negated.bind(), name='notebook-cells')",
        "answers = [await each for each in [handle.run.remote(n) for n in range(8)]]",
    ]
    namespace: dict[str, object] = {"__name__": "__notebook__"}

    for cell in cells:
        code = compile(textwrap.dedent(cell), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, namespace)
        if running is not None:
            await running

    assert [-n for n in range(8)] == namespace["answers"]
