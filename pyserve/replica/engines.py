"""The models of an engine for language models, which its replica announces before calls come."""

from __future__ import annotations

import inspect

from pyserve.observe.failures import describe, format_from_user_code
from pyserve.replica.checks import where
from pyserve.replica.loading import Loaded, LoadError
from pyserve.wire.v1 import mesh_pb2

_SERVICE = "pyserve.llm.v1.Engine"
_FIELDS = tuple(mesh_pb2.EngineModel.DESCRIPTOR.fields_by_name)


async def engine_models(loaded: Loaded, instance: object) -> list[mesh_pb2.EngineModel]:
    """Return the models of an instance of ``pyserve.llm.Engine``; none for other classes.

    A servicer of the ``.proto`` that does not derive from it has no ``models()``: it serves gRPC
    alone.

    Args:
        loaded: The class.
        instance: The user's object, which has started.

    Raises:
        LoadError: ``models()`` raised, or its answer cannot travel.
    """
    hook = getattr(instance, "models", None)
    if hook is None or all(service.name != _SERVICE for service in loaded.services):
        return []
    try:
        models = hook()
        return list(map(_message, await models if inspect.isawaitable(models) else models))
    except Exception as error:
        label = f"{type(instance).__qualname__}.models ({where(hook)}) failed"
        details = format_from_user_code(error)
        raise LoadError(f"{label}: {describe(error)}", details, user_code=True) from error


def _message(model: object) -> mesh_pb2.EngineModel:
    if not getattr(model, "id", ""):
        raise ValueError(f"{model!r} has no id, by which clients name it")
    message = mesh_pb2.EngineModel(**{name: getattr(model, name) for name in _FIELDS})
    for name in (message.id, *message.aliases, *message.adapters):
        # Names travel in headers, and people read them in logs.
        if not name.isprintable():
            raise ValueError(f"the name {name!r} has characters that are not printable")
    return message
