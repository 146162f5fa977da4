"""Forms that a handler cannot read: the client is told, and nothing is logged."""

import asyncio
from typing import Any

import pytest
from starlette.formparsers import MultiPartException
from starlette.requests import Request

import pyserve
from pyserve import _router
from pyserve.batching import BatchOptions, make_batched
from tests.unit.replica.http.serving import answer_of, serving

MULTIPART = {"content-type": "multipart/form-data; boundary=line"}
FIELDS = {"content-type": "application/x-www-form-urlencoded"}
FIELD = b'--line\r\nContent-Disposition: form-data; name="n"\r\n\r\n1\r\n--line--\r\n'


def _part(disposition: bytes, content: bytes) -> bytes:
    head = b"--line\r\nContent-Disposition: form-data" + disposition
    return head + b"\r\n\r\n" + content + b"\r\n--line--\r\n"


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.name.startswith("pyserve")]


async def names(request: Request) -> list[str]:
    async with request.form(max_fields=2, max_files=1, max_part_size=1024) as form:
        return sorted(form)


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        ({"content-type": "multipart/form-data"}, FIELD, "Missing boundary in multipart."),
        (MULTIPART, b"no form", "Invalid multipart data."),
        (
            MULTIPART,
            _part(b"", b"1"),
            'The Content-Disposition header field "name" must be provided.',
        ),
        (MULTIPART, _part(b"; name=n", b"x" * 2000), "Part exceeded maximum size of 1KB."),
        (
            {"content-type": "multipart/form-data; boundary=line; charset=undefined"},
            FIELD,
            "The form cannot be read: ",
        ),
        (FIELDS, b"a=1&b=2&c=3", "Too many fields. Maximum number of fields is 2."),
        (FIELDS, b"a=" + b"x" * 2000, "Field exceeded maximum size of 1KB."),
    ],
    ids=["boundary", "no-form", "nameless", "large-part", "charset", "many", "large-field"],
)
async def test_a_form_that_cannot_be_read_is_answered_with_400(
    headers: dict[str, str], body: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(names) as client:
        for sent in (body, None):  # whole, and as a stream
            call = client.begin(sent, headers=headers)
            if sent is None:
                client.native.endpoint.push(_router.MESSAGE, call.token, None, body)
                client.native.endpoint.push(_router.HALF_CLOSE, call.token)
            answer = await answer_of(call)
            assert 400 == answer.status
            assert answer.json()["detail"].startswith(text)
        assert ["n"] == (await client(FIELD, headers=MULTIPART)).json()
    assert not _logged(caplog)


async def test_a_handler_may_answer_a_bad_form_itself() -> None:
    async def handler(request: Request) -> str:
        try:
            await request.form()
        except MultiPartException as error:
            return f"its own: {error.message}"
        return "a form"

    async with serving(handler) as client:
        answer = await client(b"no form", headers=MULTIPART)
    assert (200, b"its own: Invalid multipart data.") == (answer.status, answer.body)


async def _of_batch(requests: list[Any]) -> list[Any]:
    return [await names(each) for each in requests]


@pytest.mark.parametrize("is_decorated", [True, False], ids=["decorator", "batching_config"])
async def test_a_batch_with_a_bad_form_is_answered_with_400(
    is_decorated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Deployed:
        async def __call__(self, requests: list[Request]) -> list[Any]:
            return await _of_batch(requests)

    class Decorated:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
        async def __call__(self, requests: list[Request]) -> list[Any]:
            return await _of_batch(requests)

    options = BatchOptions(max_batch_size=2, batch_wait_timeout_s=10)
    formed = None if is_decorated else {"__call__": make_batched(Deployed.__call__, options)}
    target = Decorated() if is_decorated else Deployed()
    async with serving(target, batched=formed) as client:
        calls = [client.begin(body, headers=MULTIPART) for body in (FIELD, b"no form")]
        answers = await asyncio.gather(*map(answer_of, calls))
    assert [400, 400] == [each.status for each in answers]
    assert {"detail": "Invalid multipart data."} == answers[0].json()
    assert not _logged(caplog)
