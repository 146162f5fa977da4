"""Describes, inside the mesh, this replica's plain HTTP interface as an OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import orjson

from pyserve.aio.internal import refuse_strangers

SERVICE = "pyserve.describing"
HTTP = f"/{SERVICE}/Http"

WEIGHTS: Mapping[str, int] = {HTTP: 0}
"""Weights of the methods at the admission gate: full replicas must answer them too."""


def handlers(describe: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the method handlers of ``SERVICE``.

    ``Http`` takes nothing and returns a document of OpenAPI as JSON, whose paths are below the
    route prefix.

    Args:
        describe: Makes the document; may run user code, so on a thread.
    """

    async def http(_request: bytes, context: Any) -> bytes:
        await refuse_strangers(context)
        document = await asyncio.to_thread(describe)
        # FastAPI's documents may have keys that are not strings, and numbers that JSON lacks.
        return orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)

    return {"Http": grpc.unary_unary_rpc_method_handler(http)}
