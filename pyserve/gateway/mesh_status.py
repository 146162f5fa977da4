"""Asks a controller how its mesh is, for an ingress that is a process of its own."""

from __future__ import annotations

from pyserve.aio.certificates import MeshTls
from pyserve.aio.mesh_channel import dial, proof
from pyserve.control.server.transport import RpcError
from pyserve.types import MeshAddress
from pyserve.wire.v1 import control_pb2, control_pb2_grpc

# A controller asks every ingress first, and waits a second for one that is stuck.
_TIMEOUT_S = 5.0


async def mesh_status(
    controller: MeshAddress | None, tls: MeshTls | None
) -> control_pb2.StatusReply:
    """Return the state of the mesh.

    Raises:
        ConnectionError: No controller answers.
    """
    if controller is None:
        raise ConnectionError("the mesh has no controller now")
    async with dial(controller.controller, tls) as channel:
        stub: control_pb2_grpc.ControlAsyncStub = control_pb2_grpc.ControlStub(channel)
        try:
            return await stub.Status(
                control_pb2.StatusRequest(), metadata=proof(controller.token), timeout=_TIMEOUT_S
            )
        except RpcError as error:
            raise ConnectionError(f"{controller.controller}: {error.details()}") from error
