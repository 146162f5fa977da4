"""How pyserve's doors differ from llama.cpp's own, and why: docs/internals/llm-doors.md."""

from __future__ import annotations

KNOWN = {
    # Fields that the documents have in each answer.
    r"chat.*: chat\.completion\.choices\[\]\.(logprobs|message\.refusal): added": "always there",
    r"chat.*: chat\.completion\.choices\[\]\.logprobs\.refusal: added": "always there",
    r"chat.*: chat\.completion\.chunk\.choices\[\]\.logprobs: added": "always there",
    r".*\.usage\.completion_tokens_details: added": "always there",
    r"response.*: (\w+\.)?response\.\w+: added": "always there",
    r"response.*: (\w+\.)?response\.usage\.(in|out)put_tokens_details.*: added": "always there",
    r"message.*: .*\.usage\.cache_creation_input_tokens: added": "always there",
    # Usage.
    r"chat, streamed, usage: chat\.completion\.chunk\.usage: added": "null until the end",
    r"chat, n: .*\.usage\.(completion|total)_tokens: changed": "of all choices, not of the first",
    r"completion, streamed: text_completion\.usage: left out": "nobody asked for it",
    r"message, streamed: message_delta\.usage\.input_tokens: added": "cumulative",
    r"message, streamed: message_start\..*\.output_tokens: changed": "the first token is there",
    # Shapes.
    r"chat, .*streamed.*: .*\.choices\[\]\.delta\.content: changed": "empty in place of null",
    r"completion, logprobs: .*\.logprobs\.\w+: (added|left out)": "completions' own shape",
    r"response, streamed: [\w.]+\.(sequence_number|\w+_index|logprobs|annotations): added": (
        "where a part belongs"
    ),
    r"response, cut: response\.(output\[\]\.)?status: changed": "incomplete, not completed",
    # What the engine ignores or takes for something else.
    r"chat, tool demanded: .*: (added|changed)": "it is called, not talked about",
    r"(chat|message), other model: .*": "404, not an answer by another model",
    r"(chat|response), .*: answer\.error\.\w+: .*": "OpenAI's code and parameter",
    # Not mended: the engine says it by its own door only.
    r"message, stop: message\.stop_sequence: changed": "unknown to the door",
}
"""What may differ (program: place: how), and the reason in short."""
