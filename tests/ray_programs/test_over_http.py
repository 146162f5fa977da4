"""Programs that are used over HTTP and gRPC, in one mesh."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import httpx
import pytest
from PIL import Image
from websockets.sync.client import connect

import pyserve as serve
from pyserve.exceptions import RequestCancelledError
from tests.ray_programs.conftest import Run
from tests.ray_programs.programs import (
    app_builder,
    asyncio_practices,
    batchbot,
    chatbot,
    disconnects,
    error_handling,
    fastapi_factory,
    fastapi_ingress,
    getting_started,
    grpc_service,
    http_responses,
    image_classifier,
    intelligent_router,
    load_shedding,
    multi_app,
    multiplexing,
    tabular_model,
    text_to_audio,
    web_page,
)
from tests.ray_programs.programs.fruit_pb2 import FruitAmounts, ModelName
from tests.ray_programs.programs.fruit_pb2_grpc import FruitServiceStub
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

TIMEOUT_S = 20


def test_a_text_is_summarized_and_translated(run: Run, client: httpx.Client):
    _, url = run(getting_started.app)

    response = client.post(url, json="It was the best of times, it was the worst of times")

    assert "c'était le meilleur temps" == response.text
    assert 400 == client.post(url, content="{").status_code


@pytest.mark.parity("G-38")
@pytest.mark.parity("G-57")
def test_applications_have_prefixes_of_their_own_and_call_each_other(
    mesh: None, client: httpx.Client
):
    serve.run_many(
        [
            serve.RunTarget(multi_app.classifier_app, "text-classifier", "/classify"),
            serve.RunTarget(multi_app.router_app, "router", "/route"),
        ]
    )
    url = f"http://{serve.status().addresses[0]}"
    routes = {"/classify": "text-classifier", "/route": "router"}
    assert routes == client.get(f"{url}/-/routes").json()
    assert "question" == client.post(f"{url}/classify", content="ready?").text
    expected = {"kind": "statement", "text": "ready."}
    assert expected == client.post(f"{url}/route", content="ready.").json()

    serve.delete("text-classifier")

    assert 404 == client.post(f"{url}/classify", content="ready?").status_code
    assert 503 == client.post(f"{url}/route", content="ready.").status_code
    serve.delete("router")


def test_a_header_names_the_model_of_a_deployment_below(run: Run, client: httpx.Client):
    """Two models fit: the third one ends the one that was used longest ago."""
    _, url = run(multiplexing.app)

    for model_id in ("a", "bb", "a", "ccc"):
        headers = {"serve_multiplexed_model_id": model_id}
        answer = client.post(url, json=[1, 2, 3], headers=headers).json()
        assert {"model_id": model_id, "forecast": 2.0 + len(model_id)} == answer

    forecasts = serve.get_deployment_handle("Forecasts", "program")
    assert ["bb"] == forecasts.seen_off.remote().result()


@pytest.mark.parity("G-33")
def test_fastapi_routes_are_methods(run: Run, client: httpx.Client):
    _, url = run(fastapi_ingress.houses)

    assert "Hello from the root!" == client.get(url).json()
    price = client.post(f"{url}/price", json={"rooms": 2, "area_m2": 50})
    assert {"price": 2050.0, "currency": "EUR"} == price.json()
    wrong = client.post(f"{url}/price", json={"rooms": 0, "area_m2": 50})
    assert (422, ["body", "rooms"]) == (wrong.status_code, wrong.json()["detail"][0]["loc"])
    named = client.put(f"{url}/houses/7", params={"name": "home"}, headers={"x-tenant": "ada"})
    assert (201, {"number": 7, "name": "home", "tenant": "ada"}) == (
        named.status_code,
        named.json(),
    )
    found = client.get(f"{url}/houses/7")
    assert ("home", "7") == (found.text, found.headers["x-number"])
    missing = client.get(f"{url}/houses/8")
    assert (404, {"detail": "no house 8"}) == (missing.status_code, missing.json())
    sent = client.post(f"{url}/photo", files={"photo": ("a.png", b"12345")})
    assert {"name": "a.png", "size": 5} == sent.json()
    assert {"version": "1"} == client.get(f"{url}/meta/version").json()
    assert "Houses" in client.get(f"{url}/docs").text
    paths = ["/", "/houses/{number}", "/meta/version", "/photo", "/price"]
    assert paths == sorted(client.get(f"{url}/openapi.json").json()["paths"])


def test_each_replica_builds_its_application(run: Run, client: httpx.Client):
    _, url = run(fastapi_factory.app)

    good = client.post(f"{url}/predict", json={"text": "a good day"})
    assert {"prediction": "positive", "confidence": 0.9} == good.json()
    assert "factory" == good.headers["x-made-by"]
    empty = client.post(f"{url}/predict", json={"text": " "})
    assert (400, {"error": "text cannot be empty"}) == (empty.status_code, empty.json())


@pytest.mark.parametrize(
    ("path", "status", "kind", "body"),
    [
        ("query?a=b&c=d", 200, "application/json", b'{"a":"b","c":"d"}'),
        ("path", 200, "application/json", b'{"path":"/program/path","root":"/program"}'),
        ("text", 200, "text/plain; charset=utf-8", b"Hello Ada by POST"),
        ("bytes", 200, "application/octet-stream", b"\x00\x01"),
        ("array", 200, "application/json", b'{"scores":[[0.5,1.0]],"best":1,"f":0.5}'),
        (
            "models",
            200,
            "application/json",
            b'[{"name":"m","layers":[1,2]},{"x":1,"y":2},"2024-01-02",[3],[4,null]]',
        ),
        ("nothing", 200, "text/plain", b""),
        ("html", 200, "text/html; charset=utf-8", b"<p>hi</p>"),
        ("teapot", 418, "application/json", b'{"error":"teapot"}'),
    ],
)
def test_a_handler_may_return(
    responses: str, client: httpx.Client, path: str, status: int, kind: str, body: bytes
):
    answer = client.post(f"{responses}/{path}", headers={"x-name": "Ada"})

    assert (status, kind, body) == (
        answer.status_code,
        answer.headers["content-type"],
        answer.content,
    )


@pytest.fixture(scope="module")
def responses(mesh: None) -> Iterator[str]:
    serve.run(http_responses.app, name="program", route_prefix="/program")
    yield f"http://{serve.status().addresses[0]}/program"
    serve.delete("program")


def test_a_handler_may_redirect_and_fail(responses: str, client: httpx.Client):
    moved = client.get(f"{responses}/redirect", follow_redirects=False)
    assert (307, "/elsewhere") == (moved.status_code, moved.headers["location"])
    failed = client.get(f"{responses}/error")
    assert 500 == failed.status_code
    assert "nobody outside" not in failed.text


def test_a_function_that_takes_nothing_is_a_deployment(run: Run, client: httpx.Client):
    _, url = run(http_responses.no_argument.bind())
    assert "1" == client.get(url).text


@pytest.mark.parity("G-34")
@pytest.mark.parity("G-35")
def test_a_chatbot_streams_over_http_and_websockets(run: Run, client: httpx.Client):
    _, url = run(chatbot.app)

    with client.stream("POST", f"{url}/", params={"prompt": "one two three"}) as response:
        assert "text/plain; charset=utf-8" == response.headers["content-type"]
        assert "three two one " == "".join(response.iter_text())

    with connect(f"{url.replace('http', 'ws')}/chat") as ws:
        assert ["b ", "a "] == _said(ws, "a b")
        # The conversation so far is part of the next prompt.
        assert ["c ", "a ", "b ", "b ", "a "] == _said(ws, "c")


def _said(ws, prompt: str) -> list[str]:
    ws.send(prompt)
    return list(iter(lambda: ws.recv(timeout=TIMEOUT_S), chatbot.END))


def test_streams_of_a_batch_end_one_by_one(run: Run, client: httpx.Client):
    handle, url = run(batchbot.app)
    ask = partial(client.get, url)

    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask, params={"max": limit}) for limit in (1, 2, 5)]

    assert ["0", "01", "01234"] == [each.result().text for each in answers]
    assert [3] == handle.batch_sizes.remote().result()


def test_a_generator_that_is_returned_streams(run: Run, client: httpx.Client):
    handle, url = run(asyncio_practices.stream)

    assert "0\n1\n2\n" == client.get(url).text
    assert ["0\n", "1\n", "2\n"] == list(handle.options(stream=True).remote(None))


@pytest.mark.parity("G-36")
async def test_a_client_that_gives_up_cancels_what_is_not_shielded(run: Run):
    """Calls that the handler makes after that, to tidy up, are made."""
    _, url = run(disconnects.app)
    log = serve.get_deployment_handle("Log", "program")
    expected: list[str] = []

    async def is_logged() -> bool:
        return bool(expected == await log.get.remote())

    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        for query, lines in (("", ["cancelled"]), ("?shielded", ["cancelled", "ZZZ"])):
            waiting = asyncio.create_task(client.get(f"{url}{query}"))
            expected.append("received")
            await eventually(is_logged, TIMEOUT_S)
            waiting.cancel()
            await asyncio.wait([waiting])
            expected.extend(lines)
            await eventually(is_logged, TIMEOUT_S)


@pytest.mark.parity("G-04")
@pytest.mark.parametrize(
    ("app", "status", "retry_after"),
    [(load_shedding.app, 503, "1"), (load_shedding.polite, 429, "5")],
)
async def test_two_run_two_wait_and_the_rest_is_turned_away(
    run: Run, app: serve.Application, status: int, retry_after: str
):
    handle, url = run(app)
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        calls = [asyncio.create_task(client.get(url)) for _ in range(9)]
        answers = asyncio.as_completed(calls)
        turned_away = [await next(answers) for _ in range(5)]
        await handle.broadcast("open")
        served = [await each for each in answers]

    assert [(200, "Hello!")] * 4 == [(each.status_code, each.text) for each in served]
    assert [(status, retry_after)] * 5 == [
        (each.status_code, each.headers["retry-after"]) for each in turned_away
    ]


def test_an_image_is_drawn_uploaded_and_classified(run: Run, client: httpx.Client):
    _, url = run(image_classifier.app)

    drawn = client.get(url, params={"name": "red", "size": 16})
    assert "image/png" == drawn.headers["content-type"]
    assert (16, 16) == Image.open(io.BytesIO(drawn.content)).size

    scores = client.post(url, files={"file": ("red.png", drawn.content)}).json()
    assert {"red": 0.576, "green": 0.212, "blue": 0.212} == scores


def test_a_text_becomes_sound(run: Run, client: httpx.Client):
    _, url = run(text_to_audio.app)

    sound = client.get(url, params={"text": "abc"})
    assert "audio/wav" == sound.headers["content-type"]
    with wave.open(io.BytesIO(sound.content)) as file:
        assert (1, 2, 8000, 240) == file.getparams()[:4]
        frames = file.readframes(240)
    pieces = client.get(url, params={"text": "abc", "stream": "1"})
    assert ("audio/pcm", frames) == (pieces.headers["content-type"], pieces.content)


def test_a_page_asks_two_models_side_by_side(run: Run, client: httpx.Client):
    _, url = run(web_page.app)

    assert '<form action="/program/api/ask">' in client.get(f"{url}/").text
    answers = client.get(f"{url}/api/ask", params={"text": "hi"}).json()
    assert ["hi, said the poet", "hi, said the clerk"] == answers


def test_rows_of_a_table_are_scored(run: Run, client: httpx.Client):
    _, url = run(tabular_model.app)

    rows = [{"age": 1, "income": 2}, {"age": 0, "income": 0, "plan": "pro"}]

    assert {"scores": [9.0, 1.0], "plans": ["basic", "pro"]} == client.post(
        url, json={"rows": rows}
    ).json()


def test_prompts_go_to_the_model_for_their_length_and_a_share_to_the_large_one(
    run: Run, client: httpx.Client
):
    _, url = run(intelligent_router.app)
    assert "[Small] cba fed" == _chat(client, url, "abc def")
    assert "[Large] a b c ed" == _chat(client, url, "a b c de")

    run(intelligent_router.tested)

    assert "[Large] cba fed" == _chat(client, url, "abc def")


def _chat(client: httpx.Client, url: str, prompt: str) -> str:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": prompt}]
    return client.post(f"{url}/v1/chat", json={"messages": messages, "user": "ada"}).text


def test_errors_of_a_deployment_below_keep_their_types_and_become_answers(
    run: Run, client: httpx.Client
):
    handle, url = run(error_handling.app)
    for word, status, body in (
        ("yes", 200, {"found": "yes found"}),
        ("nope", 404, {"unknown": "nope"}),
        ("slow", 504, {"late": "slow"}),
    ):
        answer = client.get(url, params={"word": word})
        assert (status, body) == (answer.status_code, answer.json())

    assert "flaky found" == handle.look_up.remote("flaky").result()
    with pytest.raises(error_handling.Unknown, match="nope"):
        handle.look_up.remote("nope").result()
    with pytest.raises(TimeoutError):
        handle.look_up.remote("slow").result(timeout_s=0.1)
    assert "cancelled True" == handle.cancel.remote().result()
    response = handle.look_up.remote("slow")
    response.cancel()
    with pytest.raises(RequestCancelledError):
        response.result()


def test_builders_bind_what_their_arguments_say(run: Run, client: httpx.Client):
    """One class that is bound twice is two deployments."""
    arguments = app_builder.HelloArgs(message="hey")
    _, url = run(app_builder.composed_app_builder(arguments))
    assert ["hey", "HEY"] == client.get(url).json()


@pytest.mark.parity("G-41")
@pytest.mark.parity("G-43")
def test_a_plain_class_answers_grpc(run: Run):
    run(grpc_service.app)
    metadata = (("application", "program"), ("request_id", "123"), ("multiplexed_model_id", "999"))
    with grpc.insecure_channel(serve.status().addresses[1]) as channel:
        stub = FruitServiceStub(channel)
        costs, call = stub.__call__.with_call(
            FruitAmounts(apple=2, orange=1), metadata=metadata, timeout=TIMEOUT_S
        )
        assert (7.0, grpc.StatusCode.OK) == (costs.costs, call.code())
        assert {"apples": "2", "request_id": "123"} == _pairs(call)

        with pytest.raises(grpc.RpcError) as caught:
            stub.__call__(FruitAmounts(apple=-2), metadata=metadata, timeout=TIMEOUT_S)
        assert grpc.StatusCode.INVALID_ARGUMENT is caught.value.code()
        assert "nobody has fewer than no apples" == caught.value.details()
        assert {"apples": "-2", "request_id": "123"} == _pairs(caught.value)

        model, call = stub.Multiplexing.with_call(ModelName(), metadata=metadata, timeout=TIMEOUT_S)
        assert "loading model: 999" == model.name
        assert {"request_id": "123"} == _pairs(call)
        stream = stub.Streaming(FruitAmounts(apple=3), metadata=metadata, timeout=TIMEOUT_S)
        assert [0.0, 1.0, 2.0] == [each.costs for each in stream]


def _pairs(call: Any) -> dict[str, str]:
    return dict(call.trailing_metadata())
