"""Keys of the cache index for prompts, so that calls go to a replica that has cached their prefix.

A prompt is cut into blocks of text; the key of a block is the hash of the prompt up to its end.
Callers name the keys of their prompt (``handle.options(cache_keys=prefix_keys)``), and an
``LLMServer`` whose deployment asks for it reports the keys of its past prompts. Only the text
counts: it is not known which prompts the engine's cache has evicted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from pyserve import cache
from pyserve.llm.v1 import engine_pb2

# About two blocks of 16 tokens, which is what engines keep. Arbitrary beyond that.
BLOCK_CHARACTERS = 128
# Of the hash, as many as the index keeps.
_KEY_BYTES = 8
# As many as a call may name.
_BLOCKS_MAX = 256


def keys_of(message: engine_pb2.GenerateRequest) -> list[bytes]:
    """Return the keys of the whole blocks that a prompt begins with; often none if it is short."""
    text = "".join(_parts(message))
    digest = hashlib.sha256()
    keys = []
    for begin in range(0, len(text) - BLOCK_CHARACTERS + 1, BLOCK_CHARACTERS):
        digest.update(text[begin : begin + BLOCK_CHARACTERS].encode("utf-8", "surrogatepass"))
        keys.append(digest.digest()[:_KEY_BYTES])
        if len(keys) == _BLOCKS_MAX:
            break
    return keys


def report(keys: list[bytes]) -> None:
    """Report that this replica has had a prompt with these keys."""
    if keys:
        cache.stored(keys[:1])
        cache.stored(keys[1:], parent=keys[0])


def limit(characters: int) -> None:
    """Report at most so many characters of prompts."""
    cache.set_max_keys(max(1, characters // BLOCK_CHARACTERS))


def _parts(message: engine_pb2.GenerateRequest) -> Iterator[str]:
    # In the order of chat templates, since the keys stand for prefixes.
    yield f"{message.model}\n"
    for tool in message.chat.tools:
        yield f"{tool.name}\n{tool.description}\n{tool.parameters_json}\n{tool.other_json}\n"
    for each in message.chat.messages:
        yield f"{each.role}\n{each.name}"
        for part in each.content:
            yield part.text or part.json
        for call in each.tool_calls:
            yield f"{call.name}\n{call.arguments}"
    for prompt in message.prompts.prompts[:1]:
        yield prompt.text or " ".join(map(str, prompt.token_ids.ids))
