"""What the mesh asks a replica beside calls: their delays, and its plain HTTP interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import orjson

from pyserve.aio.internal import refuse_strangers
from pyserve.observe.delays import PROCESS_DELAYS

DELAYS = "pyserve.delays"
DELAYS_OF = f"/{DELAYS}/Of"
DESCRIBING = "pyserve.describing"
DESCRIBING_HTTP = f"/{DESCRIBING}/Http"

WEIGHTS: Mapping[str, int] = {DELAYS_OF: 0, DESCRIBING_HTTP: 0}
"""Weights of the methods at the admission gate: a full replica must answer these too."""


def delays_handlers() -> dict[str, Any]:
    """Return the method handlers of ``DELAYS``, which report what a call waited for here.

    ``Of`` takes a request id and returns JSON, see ``Delays.of``.
    """

    async def of(request_id: bytes, context: Any) -> bytes:
        await refuse_strangers(context)
        return orjson.dumps(PROCESS_DELAYS.of(request_id.decode("ascii", "replace")))

    return {"Of": grpc.unary_unary_rpc_method_handler(of)}


def describing_handlers(describe: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the method handlers of ``DESCRIBING``, for this replica's plain HTTP interface.

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
