"""Reports, inside the mesh, what a call waited for in this replica."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import orjson

from pyserve.aio.internal import refuse_strangers
from pyserve.observe.delays import PROCESS_DELAYS

SERVICE = "pyserve.delays"
OF = f"/{SERVICE}/Of"

WEIGHTS: Mapping[str, int] = {OF: 0}
"""Weights of the methods at the admission gate: a full replica must answer these too."""


def handlers() -> dict[str, Any]:
    """Return the method handlers of ``SERVICE``.

    ``Of`` takes a request id and returns JSON, see ``Delays.of``.
    """

    async def of(request_id: bytes, context: Any) -> bytes:
        await refuse_strangers(context)
        return orjson.dumps(PROCESS_DELAYS.of(request_id.decode("ascii", "replace")))

    return {"Of": grpc.unary_unary_rpc_method_handler(of)}
