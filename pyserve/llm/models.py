"""The description of an engine: its models and its load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyserve.llm.v1 import engine_pb2


@dataclass(frozen=True, slots=True)
class Model:
    """A model that an engine serves.

    Attributes:
        id: Its name; unique in the application.
        aliases: Other names that clients may use.
        owned_by: The owner that clients see; empty: "pyserve".
        created: Unix time in seconds; 0: when the replica started.
        max_model_len: Tokens of prompt and completion together; 0: not known.
        root: Where its weights come from; empty: its id.
        takes_adapters: Clients may name any adapter of it, as ``id:adapter``.
        adapters: The adapters that are always loaded.
        tasks: Of ``generate``, ``chat``, ``embed``, ``score``, ``tokenize`` and ``transcribe``;
            none: ``generate`` and ``chat``.
    """

    id: str
    aliases: Sequence[str] = ()
    owned_by: str = ""
    created: int = 0
    max_model_len: int = 0
    root: str = ""
    takes_adapters: bool = False
    adapters: Sequence[str] = ()
    tasks: Sequence[str] = ()

    def message(self) -> engine_pb2.Model:
        """Return it for the wire."""
        return engine_pb2.Model(
            id=self.id,
            aliases=self.aliases,
            owned_by=self.owned_by,
            created=self.created,
            max_model_len=self.max_model_len,
            root=self.root,
            takes_adapters=self.takes_adapters,
            adapters=self.adapters,
            tasks=self.tasks,
        )

    def names(self) -> tuple[str, ...]:
        """Return its id and its aliases."""
        return (self.id, *self.aliases)


@dataclass(frozen=True, slots=True)
class Load:
    """The current load of an engine.

    Attributes:
        running_requests: Those that are in its batch.
        waiting_requests: Those that wait for a place in it.
        running_tokens: Held in the KV cache for running requests.
        waiting_tokens: Of the prompts that wait.
        max_tokens: That the KV cache has room for; 0: not known.
        kv_cache_usage: The part of it that is used, 0 to 1.
        running_adapters: Adapters of running requests.
        waiting_adapters: Adapters of waiting ones.
        max_adapters: How many may run at once.
    """

    running_requests: int = 0
    waiting_requests: int = 0
    running_tokens: int = 0
    waiting_tokens: int = 0
    max_tokens: int = 0
    kv_cache_usage: float = 0.0
    running_adapters: Sequence[str] = ()
    waiting_adapters: Sequence[str] = ()
    max_adapters: int = 0

    def message(self) -> engine_pb2.LoadResponse:
        """Return it for the wire."""
        return engine_pb2.LoadResponse(
            running_requests=self.running_requests,
            waiting_requests=self.waiting_requests,
            running_tokens=self.running_tokens,
            waiting_tokens=self.waiting_tokens,
            max_tokens=self.max_tokens,
            kv_cache_usage=self.kv_cache_usage,
            running_adapters=self.running_adapters,
            waiting_adapters=self.waiting_adapters,
            max_adapters=self.max_adapters,
        )


def find_model(name: str, models: Sequence[Model]) -> tuple[Model | None, str]:
    """Return the model that a name refers to, and the adapter; ``None``: not found.

    Names of models and adapters may contain colons: a name without an adapter is preferred, then
    the longest name of a model. The ingress parses names in the same way.

    Args:
        name: Of a request; empty: the only model.
        models: Those of the engine.
    """
    if not name:
        return (models[0] if len(models) == 1 else None), ""
    for model in models:
        if name in model.names():
            return model, ""
    pieces = name.split(":")
    for end in range(len(pieces) - 1, 0, -1):
        base, adapter = ":".join(pieces[:end]), ":".join(pieces[end:])
        for model in models:
            is_taken = model.takes_adapters or adapter in model.adapters
            if base in model.names() and adapter and is_taken:
                return model, adapter
    return None, ""
