"""Finds the generated servicers among a class's bases, and describes their services.

Generated code is recognised by its own convention: beside the class ``XServicer`` its module
holds ``add_XServicer_to_server``, which registers handlers on anything with the registration
methods of ``grpc.aio.Server``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor, MethodDescriptor

from pyserve.aio.internal import find_service
from pyserve.api.code import import_attribute
from pyserve.errors import ServicerError
from pyserve.types import ServiceName

Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]


@dataclass(frozen=True, slots=True)
class Service:
    """One service of a ``.proto``, as a base of the user's class.

    Attributes:
        name: ``pkg.Service``.
        base: The generated servicer; ``None``: the class has none, see ``handlers``.
        handlers: What generated code registers, by method; the functions stand for the user's.
        methods: The service's methods by name.
        file: The ``.proto`` that defines it.
    """

    name: ServiceName
    base: type | None
    handlers: Handlers
    methods: Mapping[str, MethodDescriptor]
    file: FileDescriptor


class Registry:
    """Stands in for a server and keeps the handlers that generated code registers."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handlers] = {}  # by full name of the service

    def add_registered_method_handlers(self, service_name: str, handlers: Handlers) -> None:
        """Keep the handlers of one service, by name of the method."""
        self.handlers[service_name] = handlers

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Read the handlers of code that was generated before grpcio 1.64."""
        for handler in handlers:
            if not isinstance(handler, grpc.ServiceRpcHandler):
                raise ServicerError(
                    f"{handler!r} is not made by generated code; only services of a .proto can "
                    f"be deployed"
                )
            service_name = handler.service_name()
            found = {
                name: method
                for name in _service_descriptor(service_name)[1]
                if (method := handler.service(_Path(f"/{service_name}/{name}"))) is not None
            }
            self.handlers.setdefault(service_name, found)


@dataclass(frozen=True, slots=True)
class _Path(grpc.HandlerCallDetails):
    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()


def find_services(target: type) -> tuple[Service, ...]:
    """Return the services whose generated servicers are bases of the class; often none."""
    found: dict[object, type] = {}
    for owner in target.__mro__:
        module = sys.modules.get(owner.__module__)
        add = getattr(module, f"add_{owner.__name__}_to_server", None)
        if callable(add):
            found[add] = owner  # The last one in the order is the generated class itself.
    return tuple(_service(base, add) for add, base in found.items())


def service_of_function(path: str) -> Service:
    """Return the service that a generated function registers.

    Args:
        path: Where it is, ``package.things_pb2_grpc:add_ThingsServicer_to_server``.

    Raises:
        ImportPathError: There is no such module or attribute.
        ServicerError: It is something else.
    """
    add = import_attribute(path)
    name = getattr(add, "__name__", "")
    if not callable(add) or not name.startswith("add_") or not name.endswith("_to_server"):
        raise ServicerError(
            f"grpc_servicer_functions has {path}, which is {add!r}; name the function "
            f"add_...Servicer_to_server of a generated _pb2_grpc module"
        )
    return _service(None, add)


class _AnyServicer:
    """Has every method, because only the handlers are of interest."""

    def __getattr__(self, name: str) -> object:
        return _never


def _never(*_arguments: object) -> None:
    raise AssertionError("a handler was called that stands for one of the user's")


def _service(base: type | None, add: Any) -> Service:
    registry = Registry()
    add(_AnyServicer(), registry)
    if len(registry.handlers) != 1:
        raise ServicerError(
            f"{add.__name__} registered {len(registry.handlers)} services instead of one; "
            f"generate {add.__module__} again"
        )
    ((name, handlers),) = registry.handlers.items()
    file, methods = _service_descriptor(name)
    return Service(ServiceName(name), base, handlers, methods, file)


def _service_descriptor(name: str) -> tuple[FileDescriptor, Mapping[str, MethodDescriptor]]:
    try:
        service = find_service(name)
    except KeyError:
        raise ServicerError(
            f"service {name} has no descriptor; import its _pb2 module where the class is defined"
        ) from None
    return service.file, {method.name: method for method in service.methods}


def file_descriptors(files: Sequence[FileDescriptor]) -> list[bytes]:
    """Return serialized files with everything they import, dependencies before dependents."""
    ordered: dict[str, bytes] = {}

    def visit(file: FileDescriptor) -> None:
        if file.name in ordered:
            return
        for dependency in file.dependencies:
            visit(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        ordered[file.name] = proto.SerializeToString()

    for file in files:
        visit(file)
    return list(ordered.values())


def expected_signature(method: MethodDescriptor) -> str:
    """Return the ``async def`` line that a method should have, in the words of the ``.proto``."""
    request = _python_name(method.input_type)
    reply = _python_name(method.output_type)
    if method.client_streaming:
        parameter = f"request_iterator: AsyncIterator[{request}]"
    else:
        parameter = f"request: {request}"
    result = f"AsyncIterator[{reply}]" if method.server_streaming else reply
    body = "  # with yield" if method.server_streaming else ""
    return f"async def {method.name}(self, {parameter}, context) -> {result}:{body}"


def _python_name(message: Descriptor) -> str:
    file: str = message.file.name
    module = file.rpartition("/")[2].removesuffix(".proto") + "_pb2"
    inner = message.full_name.removeprefix(f"{message.file.package}.")
    return f"{module}.{inner}"
