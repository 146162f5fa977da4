"""Turns requests of OpenAI's API into the messages that engines receive."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyserve.llm.errors import InvalidRequest
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    ScoreRequest,
    TokenizeChatRequest,
    TokenizeRequest,
    TranscriptionRequest,
)
from pyserve.llm.v1 import engine_pb2

Json = Mapping[str, Any]
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)
_MODES = {
    "auto": engine_pb2.ToolChoice.MODE_UNSPECIFIED,
    "none": engine_pb2.ToolChoice.MODE_NONE,
    "required": engine_pb2.ToolChoice.MODE_REQUIRED,
}
_OF_MESSAGES = {
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "reasoning",
    "reasoning_content",
}


def generate_of_chat(request: ChatCompletionRequest) -> engine_pb2.GenerateRequest:
    """Return a chat completion as an engine's request.

    Raises:
        InvalidRequest: A message, a tool or the choice of one has another form than OpenAI's.
    """
    message = _generate(request)
    message.chat.CopyFrom(_chat(request.messages, request.tools))
    chat = message.chat
    chat.tool_choice.CopyFrom(_tool_choice(request.tool_choice))
    if request.parallel_tool_calls is not None:
        chat.parallel_tool_calls = request.parallel_tool_calls
    chat.reasoning_effort = request.reasoning_effort or ""
    chat.chat_template = request.chat_template or ""
    chat.chat_template_kwargs_json = _json(request.chat_template_kwargs)
    if request.add_generation_prompt is not None:
        chat.add_generation_prompt = request.add_generation_prompt
    chat.continue_final_message = request.continue_final_message
    message.max_tokens = request.max_completion_tokens or request.max_tokens or 0
    message.logprobs = bool(request.logprobs)
    message.top_logprobs = request.top_logprobs or 0
    return message


def generate_of_completion(request: CompletionRequest) -> engine_pb2.GenerateRequest:
    """Return a completion as an engine's request.

    Raises:
        InvalidRequest: It asks for what engines cannot do.
    """
    if request.echo:
        raise InvalidRequest("calls by handles have no echo; put the prompt first yourself", "echo")
    if request.best_of not in (None, request.n or 1):
        raise InvalidRequest("only n choices are made; leave it out", "best_of")
    message = _generate(request)
    message.prompts.prompts.extend(_prompts(request.prompt, "prompt"))
    message.prompts.suffix = request.suffix or ""
    message.max_tokens = request.max_tokens or 0
    message.logprobs = request.logprobs is not None
    message.top_logprobs = request.logprobs or 0
    return message


def embed_of(request: EmbeddingRequest) -> engine_pb2.EmbedRequest:
    """Return a request for embeddings as an engine's."""
    return engine_pb2.EmbedRequest(
        model=request.model or "",
        inputs=_prompts(request.input, "input"),
        dimensions=request.dimensions or 0,
        user=request.user or "",
        other_json=_json(request.model_extra),
    )


def score_of(request: ScoreRequest) -> engine_pb2.ScoreRequest:
    """Return a request for scores as an engine's.

    Raises:
        InvalidRequest: There are several queries, and another number of documents.
    """
    queries, documents = _texts(request.text_1), _texts(request.text_2)
    if len(queries) not in (1, len(documents)) or not documents:
        found = f"{len(queries)} queries and {len(documents)} documents"
        raise InvalidRequest(f"there are {found}; send one query, or one for each", "text_1")
    return engine_pb2.ScoreRequest(
        model=request.model or "",
        queries=queries,
        documents=documents,
        other_json=_json(request.model_extra),
    )


def tokenize_of(request: TokenizeRequest) -> engine_pb2.TokenizeRequest:
    """Return a text or a chat whose tokens are wanted."""
    message = engine_pb2.TokenizeRequest(
        model=request.model or "",
        add_special_tokens=request.add_special_tokens,
        return_token_strs=bool(request.return_token_strs),
    )
    if isinstance(request, TokenizeChatRequest):
        message.chat.CopyFrom(_chat(request.messages, request.tools))
    else:
        message.text = request.prompt
    return message


def detokenize_of(request: DetokenizeRequest) -> engine_pb2.DetokenizeRequest:
    """Return tokens whose text is wanted."""
    return engine_pb2.DetokenizeRequest(model=request.model or "", token_ids=request.tokens)


def transcribe_of(request: TranscriptionRequest) -> engine_pb2.TranscribeRequest:
    """Return speech that is to be written down.

    Raises:
        InvalidRequest: ``file`` is not bytes.
    """
    if not isinstance(request.file, bytes | bytearray | memoryview):
        raise InvalidRequest("send the audio file as bytes", "file")
    message = engine_pb2.TranscribeRequest(
        request_id=request.request_id,
        model=request.model or "",
        audio=bytes(request.file),
        language=request.language or "",
        prompt=request.prompt,
        response_format=request.response_format,
        timestamp_granularities=request.timestamp_granularities,
        stream=bool(request.stream),
        other_json=_json(request.model_extra),
    )
    if request.temperature is not None:
        message.temperature = request.temperature
    return message


def _generate(request: ChatCompletionRequest | CompletionRequest) -> engine_pb2.GenerateRequest:
    message = engine_pb2.GenerateRequest(
        request_id=request.request_id,
        model=request.model or "",
        n=request.n or 1,
        stop=_texts(request.stop),
        stop_token_ids=request.stop_token_ids or [],
        stream=bool(request.stream),
        user=request.user or "",
        priority=request.priority,
        other_json=_json(request.model_extra),
    )
    for name in _SAMPLING:
        if (value := getattr(request, name)) is not None:
            setattr(message.sampling, name, value)
    for token, bias in (request.logit_bias or {}).items():
        message.sampling.logit_bias[int(token)] = bias
    message.sampling.ignore_eos = request.ignore_eos
    if request.response_format is not None:
        message.response_format.CopyFrom(_response_format(request.response_format))
    return message


def _chat(messages: Iterable[Json], tools: Iterable[Json] | None) -> engine_pb2.Chat:
    return engine_pb2.Chat(
        messages=[_message(each, f"messages[{number}]") for number, each in enumerate(messages)],
        tools=[_tool(each, f"tools[{number}]") for number, each in enumerate(tools or ())],
    )


def _message(given: Json, where: str) -> engine_pb2.ChatMessage:
    role = given.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest("a message has to have a role", f"{where}.role")
    others = {name: value for name, value in given.items() if name not in _OF_MESSAGES}
    return engine_pb2.ChatMessage(
        role=role,
        content=_content(given.get("content"), f"{where}.content"),
        name=given.get("name") or "",
        tool_calls=[_tool_call(each, where) for each in given.get("tool_calls") or ()],
        tool_call_id=given.get("tool_call_id") or "",
        reasoning=given.get("reasoning") or given.get("reasoning_content") or "",
        other_json=_json(others),
    )


def _content(content: object, where: str) -> list[engine_pb2.ContentPart]:
    if content is None:
        return []
    if isinstance(content, str):
        return [engine_pb2.ContentPart(text=content)]
    if not isinstance(content, list) or not all(isinstance(each, Mapping) for each in content):
        raise InvalidRequest("send a text, a list of parts, or null", where)
    return [
        engine_pb2.ContentPart(text=part["text"])
        if part.get("type") == "text" and isinstance(part.get("text"), str)
        else engine_pb2.ContentPart(json=_json(part))
        for part in content
    ]


def _tool_call(given: Any, where: str) -> engine_pb2.ToolCall:
    function = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest("a tool call has a function with a name", f"{where}.tool_calls")
    arguments = function.get("arguments") or ""
    return engine_pb2.ToolCall(
        id=given.get("id") or "",
        name=function["name"],
        arguments=arguments if isinstance(arguments, str) else _json(arguments),
    )


def _tool(given: Json, where: str) -> engine_pb2.Tool:
    if given.get("type", "function") != "function":
        return engine_pb2.Tool(other_json=_json(given))
    function = given.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest("a tool has a function with a name", f"{where}.function.name")
    tool = engine_pb2.Tool(
        name=function["name"],
        description=function.get("description") or "",
        parameters_json=_json(function.get("parameters")),
    )
    if function.get("strict") is not None:
        tool.strict = bool(function["strict"])
    return tool


def _tool_choice(choice: str | Json | None) -> engine_pb2.ToolChoice:
    if choice is None or isinstance(choice, str):
        mode = _MODES.get(choice or "auto")
        if mode is None:
            known = ", ".join(_MODES)
            raise InvalidRequest(f"{choice!r} is none of {known}, or an object", "tool_choice")
        return engine_pb2.ToolChoice(mode=mode)
    name = (choice.get("function") or {}).get("name") or choice.get("name")
    if not isinstance(name, str):
        raise InvalidRequest("the object names no function", "tool_choice.function.name")
    return engine_pb2.ToolChoice(mode=engine_pb2.ToolChoice.MODE_NAMED, name=name)


def _response_format(given: Json) -> engine_pb2.ResponseFormat:
    made = engine_pb2.ResponseFormat
    match given.get("type"):
        case "text":
            return made()
        case "json_object":
            return made(kind=made.KIND_JSON_OBJECT)
        case "json_schema" if isinstance(given.get("json_schema"), Mapping):
            schema = given["json_schema"]
            found = made(
                kind=made.KIND_JSON_SCHEMA,
                name=schema.get("name") or "",
                schema_json=_json(schema.get("schema")),
            )
            if schema.get("strict") is not None:
                found.strict = bool(schema["strict"])
            return found
    return made(kind=made.KIND_OTHER, other_json=_json(given))


def _prompts(given: Any, param: str) -> list[engine_pb2.Prompt]:
    found = [given] if isinstance(given, str) or _are_tokens(given) else given
    if not found:
        raise InvalidRequest("at least one is needed", param)
    return [
        engine_pb2.Prompt(text=each)
        if isinstance(each, str)
        else engine_pb2.Prompt(token_ids=engine_pb2.TokenIds(ids=each))
        for each in found
    ]


def _are_tokens(given: list[Any]) -> bool:
    return bool(given) and isinstance(given[0], int)


def _texts(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""
