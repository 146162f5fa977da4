"""Temporary files arrive with their content, whether it lies in memory or in a file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fastapi import UploadFile
from starlette.datastructures import Headers

from pyserve.errors import SerializationError
from pyserve.serializers import codec
from tests.unit.serializers.examples import call_round_trip, round_trip

IN_MEMORY_BYTES_MAX = 1000
CODECS = ["pickle", "cloudpickle"]


@pytest.fixture
def closing():
    with contextlib.ExitStack() as stack:
        yield stack


def spooled(content: bytes, closing: contextlib.ExitStack) -> Any:
    file = closing.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX))  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


def is_in_memory(file: Any) -> bool:
    return not file._rolled


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("size", [0, 10, IN_MEMORY_BYTES_MAX + 1, 200_000])
def test_an_upload_arrives_at_any_size(name, size, closing):
    content = os.urandom(size)
    headers = Headers({"content-type": "audio/wav", "x-part": "1"})
    sent = UploadFile(spooled(content, closing), size=size, filename="a.wav", headers=headers)
    [received, [inner]], named = call_round_trip(name, sent, [sent], file=sent)

    for each in (received, inner, named["file"]):
        closing.callback(each.file.close)
        assert UploadFile is type(each)
        assert ("a.wav", size, "audio/wav") == (each.filename, each.size, each.content_type)
        assert "1" == each.headers["x-part"]
        assert is_in_memory(sent.file) == is_in_memory(each.file)
    assert content == asyncio.run(received.read())
    asyncio.run(received.write(b"more"))
    asyncio.run(received.seek(size))
    assert b"more" == asyncio.run(received.read())
    assert content == sent.file.read()


@pytest.mark.parametrize("size", [10, 200_000])
def test_both_ends_are_where_the_sender_has_read_to(size, closing):
    content = os.urandom(size)
    sent = spooled(content, closing)
    assert content[:7] == sent.read(7)
    received = closing.enter_context(round_trip("pickle", sent))
    assert (7, 7) == (received.tell(), sent.tell())
    assert content[7:] == received.read() == sent.read()


def test_what_is_written_and_not_flushed_arrives(closing):
    file = closing.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    file.write(b"first")
    received = closing.enter_context(round_trip("pickle", file))
    assert 5 == received.tell()
    received.seek(0)
    assert b"first" == received.read()
    assert io.BufferedRandom is type(received)


def test_a_named_temporary_file_arrives_with_a_name_of_its_own():
    """The name's end stays, as some readers tell the kind of a file by it."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as sent:
        sent.write(b"sound")
        received = round_trip("pickle", sent)
        assert type(sent) is type(received)
        assert sent.name != received.name
    assert received.name.endswith(".wav")
    assert b"sound" == Path(received.name).read_bytes()
    received.close()
    assert not Path(received.name).exists()


def test_a_large_file_is_a_part_of_its_own(closing):
    """So it is not copied once more into the pickle."""
    content = os.urandom(200_000)
    parts = codec("pickle").encode_call((spooled(content, closing), "text"), {})
    assert content in [bytes(part) for part in parts]


@pytest.mark.parametrize("name", CODECS)
def test_files_that_have_a_place_are_refused(name, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with path.open("r+b") as updated, path.open("rb") as read:
        with pytest.raises(SerializationError, match="BufferedRandom"):
            codec(name).encode(updated)
        for file in (read, UploadFile(read)):
            with pytest.raises(SerializationError, match="cannot pickle"):
                codec(name).encode(file)


def test_an_open_number_of_a_file_with_a_name_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    number = os.open(path, os.O_RDWR)
    refused = pytest.raises(SerializationError, match="BufferedRandom")
    with open(number, "r+b") as file, refused:  # noqa: PTH123
        codec("pickle").encode(file)


def test_a_closed_file_is_refused(closing):
    for size in (10, 200_000):
        file = spooled(bytes(size), closing)
        file.close()
        with pytest.raises(SerializationError, match="closed file"):
            codec("pickle").encode(file)


def test_other_values_need_no_cloudpickle():
    """Most processes never load it."""
    program = (
        "import sys\n"
        "from pyserve.serializers import codec\n"
        "codec('pickle').encode({'a': [1, b'x' * 100_000]})\n"
        "sys.exit('cloudpickle' in sys.modules)\n"
    )
    assert 0 == os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program])
