"""The parts of a chat in the format of OpenAI's API, which templates and other servers accept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from pyserve.llm.errors import InvalidRequest
from pyserve.llm.v1 import engine_pb2

Json: TypeAlias = dict[str, Any]

_TOOL_CHOICES = {
    engine_pb2.ToolChoice.MODE_NONE: "none",
    engine_pb2.ToolChoice.MODE_REQUIRED: "required",
}


def object_of(text: str, param: str) -> Json:
    """Return a JSON object that a client has sent; empty text is an empty object.

    Raises:
        InvalidRequest: It is no object.
    """
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"this is no JSON: {error}", param) from error
    if not isinstance(found, dict):
        raise InvalidRequest(f"this has to be an object, not {text[:40]}", param)
    return found


def messages_of(chat: engine_pb2.Chat) -> list[Json]:
    """Return the messages of a chat.

    Content that is text alone is one ``str``, its parts on lines of their own, because many
    templates know nothing else; with other parts it is a list. An assistant's message that only
    calls tools has ``None``.
    """
    return [_message(each, number) for number, each in enumerate(chat.messages)]


def _message(message: engine_pb2.ChatMessage, number: int) -> Json:
    where = f"messages[{number}]"
    found = object_of(message.other_json, where)
    found |= {"role": message.role, "content": _content(message, where)}
    if message.name:
        found["name"] = message.name
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        found["tool_call_id"] = message.tool_call_id
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    return found


def _content(message: engine_pb2.ChatMessage, where: str) -> str | list[Json] | None:
    parts = message.content
    if not parts:
        return None if message.tool_calls else ""
    if all(part.WhichOneof("part") == "text" for part in parts):
        return "\n".join(part.text for part in parts)
    return [
        {"type": "text", "text": part.text}
        if part.WhichOneof("part") == "text"
        else object_of(part.json, f"{where}.content[{number}]")
        for number, part in enumerate(parts)
    ]


def tools_of(chat: engine_pb2.Chat) -> list[Json]:
    """Return the tools that a chat may call; often none."""
    return [_tool(each, number) for number, each in enumerate(chat.tools)]


def _tool(tool: engine_pb2.Tool, number: int) -> Json:
    if tool.other_json:
        return object_of(tool.other_json, f"tools[{number}]")
    function: Json = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters_json:
        where = f"tools[{number}].function.parameters"
        function["parameters"] = object_of(tool.parameters_json, where)
    if tool.HasField("strict"):
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def tool_choice_of(chat: engine_pb2.Chat) -> str | Json | None:
    """Return ``none``, ``required``, an object that names a tool, or ``None`` for the default."""
    choice = chat.tool_choice
    if choice.mode == engine_pb2.ToolChoice.MODE_NAMED:
        return {"type": "function", "function": {"name": choice.name}}
    return _TOOL_CHOICES.get(choice.mode)


def response_format_of(wanted: engine_pb2.ResponseFormat) -> Json | None:
    """Return the format that the answer must have; ``None``: text."""
    match wanted.kind:
        case engine_pb2.ResponseFormat.KIND_JSON_OBJECT:
            return {"type": "json_object"}
        case engine_pb2.ResponseFormat.KIND_JSON_SCHEMA:
            schema: Json = {"name": wanted.name}
            schema["schema"] = object_of(wanted.schema_json, "response_format.json_schema.schema")
            if wanted.HasField("strict"):
                schema["strict"] = wanted.strict
            return {"type": "json_schema", "json_schema": schema}
        case engine_pb2.ResponseFormat.KIND_OTHER:
            return object_of(wanted.other_json, "response_format")
    return None


def text_of(messages: Sequence[Json]) -> str:
    """Return a chat as plain text, a line for each message, for engines without a template."""
    lines = []
    for message in messages:
        content = message["content"]
        if isinstance(content, list):
            content = "\n".join(part.get("text", "") for part in content)
        lines.append(f"{message['role']}: {content or ''}\n")
    return "".join([*lines, "assistant: "])
