"""Learns a server's services by gRPC reflection: v1, and v1alpha where v1 is unknown.

Both versions have the same messages on the wire; only the service's name differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from pyserve.cli.commands import CommandFailed

_VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")


class Reflection:
    """One reflection stream to a server.

    Args:
        channel: To the server.
        timeout_s: Limit of all questions together.

    Raises:
        grpc.RpcError: The server cannot be reached, or answers neither version.
    """

    def __init__(self, channel: grpc.Channel, timeout_s: float) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._questions: SimpleQueue[reflection_pb2.ServerReflectionRequest | None] = SimpleQueue()
        self._answers: Iterator[reflection_pb2.ServerReflectionResponse]
        self._services = self._open()

    @property
    def services(self) -> list[str]:
        """Full names of the services, sorted."""
        return self._services

    def method(self, service: str, name: str) -> MethodDescriptor:
        """Return the descriptor of a method.

        Raises:
            CommandFailed: The server has no such service or method.
        """
        if service not in self._services:
            if self._is_served(service):
                raise _without_proto(service)
            raise CommandFailed(
                f"the server has no service {service!r}{_hint(service, self._callable())}"
            )
        pool = self._load(service)
        descriptor = pool.FindServiceByName(service)
        method = descriptor.methods_by_name.get(name)
        if method is None:
            names = [each.name for each in descriptor.methods]
            raise CommandFailed(f"{service} has no method {name!r}{_hint(name, names)}")
        return method

    def close(self) -> None:
        """End the stream."""
        self._questions.put(None)

    def _open(self) -> list[str]:
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        for version in _VERSIONS:
            self._questions = SimpleQueue()
            call = self._channel.stream_stream(
                f"/{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            self._answers = call(iter(self._questions.get, None), timeout=self._timeout_s)
            try:
                answer = self._ask(question)
            except grpc.RpcError as error:
                self._questions.put(None)
                is_last = version == _VERSIONS[-1]
                if is_last or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                continue
            return sorted(each.name for each in answer.list_services_response.service)
        raise AssertionError("the last version returns or raises")

    def _callable(self) -> list[str]:
        """Return the services that can be called: with a .proto, unless none has one."""
        found = [
            each
            for each in self._services
            if self._ask(
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=each)
            ).HasField("file_descriptor_response")
        ]
        return found or self._services

    def _is_served(self, service: str) -> bool:
        """Tell whether a service is there although reflection does not list it."""
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            health_pb2_grpc.HealthStub(self._channel).Check(request, timeout=self._timeout_s)
        except grpc.RpcError:
            return False
        return True

    def _load(self, service: str) -> descriptor_pool.DescriptorPool:
        pool = descriptor_pool.DescriptorPool()
        files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
        question = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
        self._collect(question, files)
        added: set[str] = set()
        for name in list(files):
            self._add(name, files, added, pool)
        return pool

    # No function inside of the other: it would refer to itself, and keep the stream alive.
    def _add(
        self,
        name: str,
        files: dict[str, descriptor_pb2.FileDescriptorProto],
        added: set[str],
        pool: descriptor_pool.DescriptorPool,
    ) -> None:
        """Add a file to the pool after those that it needs."""
        if name in added:
            return
        added.add(name)
        if name not in files:
            missing = reflection_pb2.ServerReflectionRequest(file_by_filename=name)
            self._collect(missing, files)
        for dependency in files[name].dependency:
            self._add(dependency, files, added, pool)
        pool.Add(files[name])

    def _collect(
        self,
        question: reflection_pb2.ServerReflectionRequest,
        files: dict[str, descriptor_pb2.FileDescriptorProto],
    ) -> None:
        answer = self._ask(question)
        if answer.WhichOneof("message_response") == "error_response":
            raise _without_proto(question.file_containing_symbol or question.file_by_filename)
        for serialized in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
            files[file.name] = file

    def _ask(
        self, question: reflection_pb2.ServerReflectionRequest
    ) -> reflection_pb2.ServerReflectionResponse:
        self._questions.put(question)
        return next(self._answers)


def _without_proto(name: str) -> CommandFailed:
    return CommandFailed(
        f"the server's reflection has no .proto of {name!r}; a deployment without one is called "
        "with a handle, or by plain HTTP at its route prefix"
    )


def _hint(name: str, known: list[str]) -> str:
    import difflib

    # A name without its package is what people write first.
    same = [each for each in known if each.endswith(f".{name}")]
    close = same or difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; it has {', '.join(known)}" if known else "; it has none"
