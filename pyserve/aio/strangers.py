"""Methods for processes of the mesh: to all others they are not there."""

from __future__ import annotations

from typing import Any

import grpc

METHOD_NOT_FOUND = "Method not found!"
"""The details of the status for a method that does not exist, as in grpc.aio."""


async def refuse_strangers(context: Any) -> None:
    """Go on for callers that have proven to belong to the mesh.

    Args:
        context: Of a call that a ``Server`` of this package handles.

    Raises:
        grpc.aio.AbortError: It is another caller, who learns nothing.
    """
    if not context.call.trusted:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, METHOD_NOT_FOUND)
