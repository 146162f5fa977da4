"""The two doors of a model: the gRPC service of the protocol, and its paths of plain HTTP."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import grpc
import orjson
from grpc import StatusCode

from pyserve.aio.internal import on_thread, steps_on_threads
from pyserve.errors import Abort
from pyserve.inference import messages, rest
from pyserve.inference import open_inference_pb2 as pb
from pyserve.inference.declaration import METHOD, Model
from pyserve.inference.descriptors import EXTENSIONS, SERVER_NAME, SERVICE
from pyserve.inference.tensors import Array
from pyserve.observe.failures import exc_info_of, failure_logger, text_of
from pyserve.replica import iterators
from pyserve.replica.plain.methods import PlainMethod
from pyserve.version import version

if TYPE_CHECKING:
    from pyserve.aio import HttpCall, HttpHandler

_LOGGER = failure_logger(__name__)
_JSON = [(b"content-type", b"application/json")]
# Errors that have a status of their own; all others are the server's mistake.
_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 503,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 408,
}
_NEUTRAL_TEXT = "the model raised an exception; the server's log has the traceback"


class InferenceDoors:
    """The endpoints that a replica registers for its model.

    Args:
        model: What the class declares.
        methods: The methods of the instance by name; ``infer`` among them.
        development: Texts of exceptions may reach clients.

    Attributes:
        service: Full name of the gRPC service.
    """

    service = SERVICE

    def __init__(
        self,
        model: Model,
        methods: Mapping[str, PlainMethod],
        *,
        development: bool = False,
    ) -> None:
        self._model = model
        self._runner = Runner(model, methods[METHOD])
        self._development = development

    # --- gRPC ---------------------------------------------------------------------------

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return the handlers of the service by method."""
        unary: dict[str, tuple[Any, Any]] = {
            "ServerLive": (self._server_live, pb.ServerLiveRequest),
            "ServerReady": (self._server_ready, pb.ServerReadyRequest),
            "ModelReady": (self._model_ready, pb.ModelReadyRequest),
            "ServerMetadata": (self._server_metadata, pb.ServerMetadataRequest),
            "ModelMetadata": (self._model_metadata, pb.ModelMetadataRequest),
            "ModelInfer": (self._model_infer, pb.ModelInferRequest),
        }
        found: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                behavior,
                request_deserializer=request.FromString,
                response_serializer=_serialize,
            )
            for name, (behavior, request) in unary.items()
        }
        found["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._model_stream_infer,
            request_deserializer=pb.ModelInferRequest.FromString,
            response_serializer=_serialize,
        )
        return found

    async def _server_live(self, _request: object, _context: object) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def _server_ready(self, _request: object, _context: object) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=True)

    async def _server_metadata(
        self, _request: object, _context: object
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=SERVER_NAME, version=version(), extensions=EXTENSIONS)

    async def _model_ready(
        self, request: pb.ModelReadyRequest, _context: object
    ) -> pb.ModelReadyResponse:
        # As in other servers: a model that is not served is not ready, and asking is not an error.
        is_served = request.name == self._model.name and (
            not request.version or request.version in self._model.versions
        )
        return pb.ModelReadyResponse(ready=is_served)

    async def _model_metadata(
        self, request: pb.ModelMetadataRequest, _context: object
    ) -> pb.ModelMetadataResponse:
        messages.check_version(self._model, request.name, request.version)
        return messages.metadata(self._model)

    async def _model_infer(
        self, request: pb.ModelInferRequest, context: object
    ) -> pb.ModelInferResponse:
        inference = messages.read_request(self._model, request)
        arrays = await self._runner.one(inference.arrays, context)
        return messages.write_response(self._model, inference, arrays)

    async def _model_stream_infer(
        self, requests: AsyncIterator[pb.ModelInferRequest], context: object
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        async for request in requests:
            # One request that fails does not end the stream of the others.
            try:
                inference = messages.read_request(self._model, request)
                async for arrays in self._runner.many(inference.arrays, context):
                    yield pb.ModelStreamInferResponse(
                        infer_response=messages.write_response(self._model, inference, arrays)
                    )
            except Exception as error:
                text = self._failure(error)[1]
                response = pb.ModelInferResponse(id=request.id, model_name=request.model_name)
                yield pb.ModelStreamInferResponse(error_message=text, infer_response=response)

    # --- plain HTTP ---------------------------------------------------------------------

    def in_front_of(self, handler: HttpHandler | None) -> HttpHandler:
        """Return a handler for requests below the prefix that leaves others to ``handler``."""

        async def handle(call: HttpCall) -> None:
            if handler is None or self._below_prefix(call) is not None:
                await self.http(call)
            else:
                await handler(call)

        return handle

    async def http(self, call: HttpCall) -> None:
        """Answer a request below the model's prefix; an ``HttpHandler``."""
        try:
            answer = await self._answer(call)
        except _OtherMethods as error:
            headers = [*_JSON, (b"allow", error.allowed.encode())]
            call.respond(405, headers, orjson.dumps({"error": str(error)}))
        except Exception as error:
            status, text = self._failure(error)
            call.respond(status, _JSON, orjson.dumps({"error": text}))
        else:
            headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
            call.respond(200, headers, answer.body)

    async def _answer(self, call: HttpCall) -> rest.Answer:
        path = _path_of(call)
        action = self._action(path, self._below_prefix(call))
        if action == METHOD:
            _require(call, path, "POST")
            length = call.header(rest.JSON_LENGTH)
            wanted = rest.read_request(self._model, await call.body(), length)
            arrays = await self._runner.one(wanted.inference.arrays, call)
            return rest.write_response(self._model, wanted, arrays)
        _require(call, path, "GET", "HEAD")
        document: dict[str, object] = {"name": self._model.name, "ready": True}
        if action != "ready":
            document = rest.metadata(self._model)
        return rest.Answer(_JSON, orjson.dumps(document))

    def _below_prefix(self, call: HttpCall) -> str | None:
        """Return what follows the model's prefix in a path, ``None`` for a path of others."""
        prefix, root_path = self._model.prefix, call.head.root_path
        if root_path.endswith(prefix):
            prefix = root_path  # The ingress has found it so.
        elif root_path:
            return None  # It was found by the application's own prefix.
        path = _path_of(call)
        rest = path.removeprefix(prefix)
        return rest if len(rest) < len(path) and rest[:1] in ("", "/") else None

    def _action(self, path: str, rest: str | None) -> str:
        """Return what a path asks for: ``infer``, ``ready`` or ``""`` for metadata.

        Args:
            path: All of it, for the message.
            rest: What follows the model's prefix, if the path is below it.

        Raises:
            Abort: NOT_FOUND.
        """
        parts = ["", ""] if rest is None else rest.strip("/").split("/")
        if parts[0] == "versions" and len(parts) > 1:
            messages.check_version(self._model, self._model.name, parts[1])
            parts = parts[2:] or [""]
        if len(parts) == 1 and parts[0] in (METHOD, "ready", ""):
            return parts[0]
        raise Abort(
            grpc.StatusCode.NOT_FOUND,
            f"{path} is not known; a model has /infer, /ready and, at its own path, its metadata",
        )

    def _failure(self, error: Exception) -> tuple[int, str]:
        """Return the HTTP status and the text of a failure, which is logged if it is ours."""
        if isinstance(error, Abort):
            return _STATUSES.get(error.code, 500), error.details or error.code.name
        _LOGGER.error("model %s raised", self._model.name, exc_info=exc_info_of(error))
        text = f"{type(error).__name__}: {text_of(error)}"
        return 500, text if self._development else _NEUTRAL_TEXT


def _path_of(call: HttpCall) -> str:
    return call.head.target.partition(b"?")[0].decode("latin-1")


def _require(call: HttpCall, path: str, *methods: str) -> None:
    if call.head.method not in methods:
        raise _OtherMethods(path, ", ".join(methods))


class _OtherMethods(Exception):
    """The path is known, but not for this HTTP method."""

    def __init__(self, path: str, allowed: str) -> None:
        super().__init__(f"{path} takes {allowed}")
        self.allowed = allowed


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


# Runs `infer` for one request, whatever kind of method it is.


class Runner:
    """Calls ``infer`` of one model.

    Args:
        model: What it declares.
        method: ``infer``.

    ``call`` is in all methods what the request came with: an ``HttpCall`` or the context of an
    RPC, whose server has the threads for a ``def``.
    """

    def __init__(self, model: Model, method: PlainMethod) -> None:
        self.model = model
        self.streams = method.streams
        self._method = method

    async def one(self, arrays: Mapping[str, Array], call: Any) -> dict[str, Array]:
        """Return the arrays of one answer.

        Raises:
            Abort: UNIMPLEMENTED for a method that yields; INTERNAL when the result is not as
                declared; whatever user code aborts with.
            Exception: Whatever user code raises.
        """
        if self.streams:
            raise Abort(
                StatusCode.UNIMPLEMENTED,
                f"model {self.model.name!r} answers with a stream: call ModelStreamInfer",
            )
        function = functools.partial(self._method.function, **arrays)
        if self._method.is_threaded:
            return self._pack(await on_thread(call, contextvars.copy_context(), function))
        return self._pack(await function())

    async def many(self, arrays: Mapping[str, Array], call: Any) -> AsyncIterator[dict[str, Array]]:
        """Yield the arrays of each answer; of a method that does not yield, of the only one."""
        if not self.streams:
            yield await self.one(arrays, call)
            return
        items = self._method.function(**arrays)
        if self._method.is_threaded:
            items = steps_on_threads(call, items)
        try:
            async for item in items:
                yield self._pack(item)
        finally:
            await iterators.close(items)

    def _pack(self, result: object) -> dict[str, Array]:
        try:
            return self.model.pack(result)
        except TypeError as error:
            _LOGGER.error("model %s: %s", self.model.name, error)
            raise Abort(
                StatusCode.INTERNAL, f"model {self.model.name!r} did not answer as declared"
            ) from error
