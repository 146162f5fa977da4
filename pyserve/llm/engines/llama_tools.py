"""Tool calls that a request requires, for llama.cpp. Pure.

llama.cpp lets a model generate text before it calls a tool, so that small models never call it, and
ignores a ``tool_choice`` that names a tool. Therefore only the arguments are generated, with the
tool's schema as the grammar, and turned into a call here.
"""

from __future__ import annotations

import json

from pyserve.llm.chats import Json
from pyserve.llm.deltas import Delta, ToolCall
from pyserve.llm.errors import InvalidRequest
from pyserve.llm.requests import GenerateRequest

_TAG = "<tool_call>"


class DemandedCall:
    """One call of one of some tools.

    Args:
        tools: The functions that may be called; with one, its arguments are generated alone.
        call_id: Of the call.

    Attributes:
        schema: What is to be generated.
    """

    def __init__(self, tools: list[Json], call_id: str) -> None:
        self._id = call_id
        self._text = ""
        self._is_told = False
        self._only: str | None = tools[0]["name"] if len(tools) == 1 else None
        schemas = [_call_schema(each) for each in tools]
        self.schema = _arguments_schema(tools[0]) if self._only else {"anyOf": schemas}

    def prefix(self, template: str) -> str:
        """Return what the model has written already, as its template has it.

        Args:
            template: The model's. Those that write calls in another way get no prefix.
        """
        if _TAG not in template:
            return ""
        begin = f"{_TAG}\n"
        return begin if self._only is None else f'{begin}{{"name": "{self._only}", "arguments": '

    def take(self, delta: Delta) -> Delta | None:
        """Return a delta of generated text as one of a call; ``None``: there is nothing new."""
        text, delta.text = delta.text, ""
        if self._only is not None:
            self._tell(delta, self._only, text)
        else:
            self._text += text
            if delta.finish_reason is not None:
                self._parse(delta)
        if delta.finish_reason == "stop":
            delta.finish_reason = "tool_calls"
        is_news = delta.tool_calls or delta.finish_reason or delta.usage or delta.text
        return delta if is_news else None

    def _tell(self, delta: Delta, name: str, arguments: str) -> None:
        if not self._is_told:
            self._is_told = True
            delta.tool_calls = [ToolCall(0, self._id, name, arguments)]
        elif arguments:
            delta.tool_calls = [ToolCall(0, arguments=arguments)]

    def _parse(self, delta: Delta) -> None:
        try:
            call = json.loads(self._text)
        except ValueError:  # It was cut.
            delta.text = self._text
            return
        self._tell(delta, call["name"], json.dumps(call["arguments"]))


def demanded_call(request: GenerateRequest) -> DemandedCall | None:
    """Return the call that a request demands; ``None``: it demands none.

    Raises:
        InvalidRequest: It names a tool that it does not have.
    """
    choice = request.tool_choice
    if choice is None or choice == "none":
        return None
    functions = [each["function"] for each in request.tools if "function" in each]
    if isinstance(choice, dict):
        name = choice["function"]["name"]
        functions = [each for each in functions if each["name"] == name]
        if not functions:
            raise InvalidRequest(f"it names {name!r}, which is none of the tools", "tool_choice")
    return DemandedCall(functions, f"call_{request.request_id}") if functions else None


def _arguments_schema(function: Json) -> Json:
    return function.get("parameters") or {"type": "object"}


def _call_schema(function: Json) -> Json:
    properties = {"name": {"const": function["name"]}, "arguments": _arguments_schema(function)}
    return {
        "type": "object",
        "properties": properties,
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
