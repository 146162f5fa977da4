"""The part of the Open Inference Protocol that the ingress answers, for the mesh as a whole.

Calls of one model go straight to the replicas that have it: over HTTP the path names the model.
Over gRPC only the message names it, and routers do not read messages. So while several deployments
have models, their service is answered here, and each call is passed on by the model that it names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import orjson

from pyserve import aio
from pyserve.bridge import rust
from pyserve.errors import Abort
from pyserve.inference import open_inference_pb2 as pb
from pyserve.inference.descriptors import EXTENSIONS, SERVER_NAME, SERVICE
from pyserve.version import version

if TYPE_CHECKING:
    from pyserve.routing.watcher import Views

PREFIX = "/v2"
_MODELS = f"{PREFIX}/models/"
_JSON = [(b"content-type", b"application/json")]
_METHODS = "GET, HEAD"
TENSOR_PATHS = (f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ModelStreamInfer")
"""Calls with messages that may be as long as a deployment takes."""
# Headers of the hop that ends here; the next hop has its own.
_NOT_PASSED_ON = ("grpc-", "pyserve-", "content-type", "te", "user-agent", "host")


class InferenceFront:
    """Passes calls on by model, and answers for the mesh.

    Args:
        table: The routing table of this process.

    Attributes:
        message_bytes_max: The largest limit of a deployment with models; 0: there are none.
    """

    def __init__(self, table: rust.RoutingTable) -> None:
        self._table = table
        self._targets: dict[str, str] = {}  # "application/Deployment" by model
        self._channels: dict[str, aio.Channel] = {}
        self.message_bytes_max = 0

    def update(self, views: Views) -> None:
        """Take a new view of the mesh."""
        self._targets = {
            prefix.removeprefix(_MODELS): f"{view.key.application}/{view.key.name}"
            for view in views.values()
            for prefix in view.http_prefixes
            if prefix.startswith(_MODELS)
        }
        taken_bytes = (
            view.max_request_bytes
            for view in views.values()
            if any(prefix.startswith(_MODELS) for prefix in view.http_prefixes)
        )
        self.message_bytes_max = max(taken_bytes, default=0)

    def services(self) -> dict[str, list[str]]:
        """Return the service and its methods, while calls cannot go straight to one place."""
        is_needed = len(set(self._targets.values())) > 1
        return {SERVICE: list(self.handlers())} if is_needed else {}

    def prefixes(self) -> list[str]:
        """Return where plain HTTP comes here, while there are models."""
        return [PREFIX] if self._targets else []

    async def close(self) -> None:
        """Close the channels to deployments."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    # --- gRPC ---------------------------------------------------------------------------

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return the handlers of the service by method; messages are passed on as they are."""
        found: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "ServerLive": grpc.unary_unary_rpc_method_handler(self._live),
            "ServerReady": grpc.unary_unary_rpc_method_handler(self._ready),
            "ServerMetadata": grpc.unary_unary_rpc_method_handler(self._metadata),
            "ModelReady": grpc.unary_unary_rpc_method_handler(self._model_ready),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        for name in ("ModelMetadata", "ModelInfer"):
            found[name] = grpc.unary_unary_rpc_method_handler(self._forwarder(name))
        return found

    async def _live(self, _request: bytes, _context: object) -> bytes:
        return pb.ServerLiveResponse(live=True).SerializeToString()

    async def _ready(self, _request: bytes, _context: object) -> bytes:
        return pb.ServerReadyResponse(ready=True).SerializeToString()

    async def _metadata(self, _request: bytes, _context: object) -> bytes:
        response = pb.ServerMetadataResponse(
            name=SERVER_NAME, version=version(), extensions=EXTENSIONS
        )
        return response.SerializeToString()

    async def _model_ready(self, request: bytes, context: Any) -> bytes:
        if _model_name(request) not in self._targets:
            return pb.ModelReadyResponse(ready=False).SerializeToString()
        forward = self._forwarder("ModelReady")
        answer: bytes = await forward(request, context)
        return answer

    def _forwarder(self, name: str) -> Any:
        path = f"/{SERVICE}/{name}"

        async def forward(request: bytes, context: Any) -> bytes:
            call = self._channel(_model_name(request)).unary_unary(path)
            try:
                answer: bytes = await call(
                    request, timeout=context.time_remaining(), metadata=_metadata_of(context)
                )
            except grpc.aio.AioRpcError as error:
                raise _as_abort(error) from None
            return answer

        return forward

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """The first request names the model of all."""
        first = await anext(aiter(requests), None)
        if first is None:
            return

        async def rest() -> AsyncIterator[bytes]:
            yield first
            async for request in requests:
                yield request

        call = self._channel(_model_name(first)).stream_stream(f"/{SERVICE}/ModelStreamInfer")(
            rest(), timeout=context.time_remaining(), metadata=_metadata_of(context)
        )
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise _as_abort(error) from None
        finally:
            call.cancel()

    def _channel(self, model: str) -> aio.Channel:
        target = self._targets.get(model)
        if target is None:
            known = ", ".join(sorted(self._targets)) or "none"
            raise Abort(grpc.StatusCode.NOT_FOUND, f"model {model!r} is not served; {known} are")
        channel = self._channels.get(target)
        if channel is None:
            # No limits here: those of the deployment hold at its replicas.
            native = rust.Channel(target, table=self._table, max_receive_message_bytes=-1)
            channel = self._channels[target] = aio.Channel(native)
        return channel

    # --- plain HTTP ---------------------------------------------------------------------

    async def http(self, call: aio.HttpCall) -> None:
        """Answer what is below ``/v2`` and belongs to no model; an ``HttpHandler``."""
        path = call.head.target.partition(b"?")[0].decode("latin-1").rstrip("/")
        documents: dict[str, dict[str, object]] = {
            "": {"name": SERVER_NAME, "version": version(), "extensions": EXTENSIONS},
            "/health/live": {"live": True},
            "/health/ready": {"ready": True},
        }
        document = documents.get(path.rpartition(PREFIX)[2])
        headers = list(_JSON)
        if document is None:
            status, document = 404, {"error": f"{path} is not known here: no such model or path"}
        elif call.head.method not in _METHODS.split(", "):
            status, document = 405, {"error": f"{path} takes {_METHODS}"}
            headers.append((b"allow", _METHODS.encode()))
        else:
            status = 200
        body = orjson.dumps(document)
        call.respond(status, [*headers, (b"content-length", str(len(body)).encode())], body)


def _model_name(request: bytes) -> str:
    # All requests have the model's name in field 1, and its version in field 2.
    try:
        return pb.ModelReadyRequest.FromString(request).name
    except Exception as error:
        raise Abort(
            grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be read: {error}"
        ) from None


def _metadata_of(context: Any) -> list[tuple[str, str | bytes]]:
    return [
        (key, value)
        for key, value in context.invocation_metadata() or ()
        if not key.startswith(_NOT_PASSED_ON)
    ]


def _as_abort(error: grpc.aio.AioRpcError) -> Abort:
    return Abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
