"""Which part of a file answers which request, and with which headers."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

import pyserve
from pyserve.errors import UsageError
from tests.unit.aio.fake_ring import FakeServerCall
from tests.unit.replica.http.serving import Answer, answer_of, serving

MODIFIED = "Sun, 06 Nov 1994 08:49:37 GMT"
MODIFIED_S = 784111777
ETAG = f'"{MODIFIED_S * 10**9:x}-a"'
WHOLE = (200, (0, 10))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of ten bytes, of a known time."""
    path = tmp_path / "digits.txt"
    path.write_bytes(b"0123456789")
    os.utime(path, ns=(0, MODIFIED_S * 10**9))
    return path


def _sent(call: FakeServerCall) -> tuple[int, int] | None:
    """Return offset and length of what was sent."""
    found = [tuple(arguments) for name, *arguments in call.commands if name == "send_file"]
    return found[0] if found else None


async def _ask(file: pyserve.File, **request: Any) -> tuple[Answer, tuple[int, int] | None]:
    async with serving(lambda: file) as client:
        call = client.begin(**({"method": "GET"} | request))
        return await answer_of(call), _sent(call)


async def test_the_headers_say_what_a_file_is(path: Path) -> None:
    answer, sent = await _ask(pyserve.File(path))
    assert WHOLE == (answer.status, sent)
    assert {
        "content-type": "text/plain; charset=utf-8",
        "content-length": "10",
        "last-modified": MODIFIED,
        "etag": ETAG,
        "accept-ranges": "bytes",
    } == answer.headers


async def test_who_answers_may_say_it_otherwise(path: Path) -> None:
    file = pyserve.File(
        path, media_type="a/b", filename="für dich.txt", headers={"ETag": '"mine"', "x-a": "1"}
    )
    answer, _ = await _ask(file)
    assert ("a/b", '"mine"', "1", "attachment; filename*=utf-8''f%C3%BCr%20dich.txt") == tuple(
        answer.headers[name] for name in ("content-type", "etag", "x-a", "content-disposition")
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.png", "image/png"),
        ("a.html", "text/html; charset=utf-8"),
        ("a.txt.gz", "application/octet-stream"),
        ("a", "application/octet-stream"),
    ],
)
async def test_the_content_type_is_that_of_the_name(path: Path, name: str, kind: str) -> None:
    answer, _ = await _ask(pyserve.File(path, filename=name))
    assert kind == answer.headers["content-type"]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ("bytes=2-4", (206, (2, 3))),
        ("bytes=2-", (206, (2, 8))),
        ("Bytes=0-99", (206, (0, 10))),
        ("bytes=-3", (206, (7, 3))),
        ("bytes=-99", (206, (0, 10))),
        ("bytes=9-9", (206, (9, 1))),
        ("bytes=10-", (416, None)),
        ("bytes=-0", (416, None)),
        ("bytes=4-2", WHOLE),
        ("bytes=-", WHOLE),
        ("bytes=0-1,3-4", WHOLE),
        ("bytes=a-b", WHOLE),
        ("bytes=1_0-", WHOLE),
        ("lines=0-1", WHOLE),
        (f"bytes={'9' * 5000}-", WHOLE),
    ],
)
async def test_one_range_is_sent_alone(path: Path, wish: str, expected: Any) -> None:
    answer, sent = await _ask(pyserve.File(path), headers={"range": wish})
    assert expected == (answer.status, sent)
    if sent is not None and answer.status == 206:
        begin, length = sent
        assert f"bytes {begin}-{begin + length - 1}/10" == answer.headers["content-range"]
        assert str(length) == answer.headers["content-length"]
    elif answer.status == 416:
        assert "bytes */10" == answer.headers["content-range"]


@pytest.mark.parametrize(
    ("validator", "status"),
    [
        (ETAG, 206),
        (MODIFIED, 206),
        ('"another"', 200),
        (f"W/{ETAG}", 200),
        ("*", 200),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200),
    ],
)
async def test_a_range_of_another_version_is_not_sent(
    path: Path, validator: str, status: int
) -> None:
    headers = {"range": "bytes=0-1", "if-range": validator}
    answer, _ = await _ask(pyserve.File(path), headers=headers)
    assert status == answer.status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if-none-match": ETAG}, 304),
        ({"if-none-match": f'"a", W/{ETAG}'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"a"'}, 200),
        ({"if-none-match": '"a"', "if-modified-since": MODIFIED}, 200),
        ({"if-modified-since": MODIFIED}, 304),
        ({"if-modified-since": "Sun, 06 Nov 1994 08:49:36 GMT"}, 200),
        ({"if-modified-since": "yesterday"}, 200),
        ({"if-match": ETAG}, 200),
        ({"if-match": "*"}, 200),
        ({"if-match": f"W/{ETAG}"}, 412),
    ],
)
async def test_what_the_client_has_is_not_sent_again(
    path: Path, headers: dict[str, str], status: int
) -> None:
    answer, sent = await _ask(pyserve.File(path), headers=headers)
    assert (status, status == 200) == (answer.status, sent is not None)
    if status == 304:
        assert ETAG == answer.headers["etag"]
        assert "content-type" not in answer.headers


async def test_head_is_answered_without_the_file(path: Path) -> None:
    answer, sent = await _ask(pyserve.File(path), method="HEAD", headers={"range": "bytes=0-1"})
    assert (200, "10", None) == (answer.status, answer.headers["content-length"], sent)


async def test_an_empty_file_is_an_empty_answer(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    answer, sent = await _ask(pyserve.File(path))
    assert (200, "0", b"", None) == (
        answer.status,
        answer.headers["content-length"],
        answer.body,
        sent,
    )


@pytest.mark.parametrize("name", ["missing", "", "pipe"])
async def test_what_cannot_be_opened_is_logged_and_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = str(tmp_path / name)
    async with serving(lambda: pyserve.File(path), development=True) as client:
        answer = await client(method="GET")
    assert (500, b"Internal Server Error") == (answer.status, answer.body)
    assert path not in str(answer.headers)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert repr(path) in record.getMessage()


async def test_a_file_that_breaks_off_aborts_the_answer(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_file = FakeServerCall.send_file

    def broken(call: FakeServerCall, *arguments: Any) -> bool:
        call.file_error = "the file ends at 3, it has become shorter"
        return send_file(call, *arguments)

    monkeypatch.setattr(FakeServerCall, "send_file", broken)
    answer, _ = await _ask(pyserve.File(path))
    assert 13 == answer.code
    assert "the file ends at 3" in caplog.text
    assert str(path) in caplog.text


def test_what_depends_on_the_part_is_not_for_the_handler() -> None:
    with pytest.raises(UsageError, match="Content-Length"):
        pyserve.File("a", headers={"Content-Length": "1"})
