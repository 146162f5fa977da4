"""The names and parameters of pyserve.aio are those of grpc.aio."""

import asyncio
import inspect
import sys
from typing import Any

import grpc
import pytest

import pyserve.aio
from pyserve.aio import _calls, _client_interceptors, _multicallables

# What grpc.aio offers beyond servers, channels and calls: control of its own C library.
_OF_THE_C_LIBRARY = {"init_grpc_aio", "shutdown_grpc_aio"}

PAIRS = [
    (grpc.aio.ServicerContext, pyserve.aio.ServicerContext),
    (grpc.aio.Server, pyserve.aio.Server),
    (grpc.aio.Channel, pyserve.aio.Channel),
    (grpc.aio.UnaryUnaryMultiCallable, _multicallables.UnaryUnaryMultiCallable),
    (grpc.aio.UnaryStreamMultiCallable, _multicallables.UnaryStreamMultiCallable),
    (grpc.aio.StreamUnaryMultiCallable, _multicallables.StreamUnaryMultiCallable),
    (grpc.aio.StreamStreamMultiCallable, _multicallables.StreamStreamMultiCallable),
    (grpc.aio.UnaryUnaryCall, _calls.UnaryUnaryCall),
    (grpc.aio.UnaryStreamCall, _calls.UnaryStreamCall),
    (grpc.aio.StreamUnaryCall, _calls.StreamUnaryCall),
    (grpc.aio.StreamStreamCall, _calls.StreamStreamCall),
    (grpc.aio.UnaryUnaryCall, _client_interceptors.InterceptedUnaryUnaryCall),
    (grpc.aio.UnaryStreamCall, _client_interceptors.InterceptedUnaryStreamCall),
    (grpc.aio.StreamUnaryCall, _client_interceptors.InterceptedStreamUnaryCall),
    (grpc.aio.StreamStreamCall, _client_interceptors.InterceptedStreamStreamCall),
]


def _parameters(function: Any) -> list[tuple[str, object]]:
    signature = inspect.signature(function)
    return [
        (parameter.name, parameter.kind)
        for parameter in signature.parameters.values()
        if not parameter.name.startswith("_")
    ]


def _is_async(function: Any) -> bool:
    if sys.version_info >= (3, 12):
        return inspect.iscoroutinefunction(function)
    return asyncio.iscoroutinefunction(function)  # Alone in knowing functions that are marked.


def _public(owner: type) -> list[str]:
    names = [name for name in dir(owner) if not name.startswith("_")]
    return [*names, "__call__"] if hasattr(owner, "__call__") else names  # noqa: B004


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1].__name__)
def test_methods_have_the_names_and_parameters_of_grpc_aio(pair: tuple[type, type]) -> None:
    theirs, ours = pair
    for name in _public(theirs):
        expected = getattr(theirs, name)
        assert _parameters(expected) == _parameters(getattr(ours, name)), name
        assert _is_async(expected) == _is_async(getattr(ours, name)), name


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1].__name__)
def test_objects_count_as_instances_of_grpc_aio(pair: tuple[type, type]) -> None:
    theirs, ours = pair
    assert issubclass(ours, theirs)


@pytest.mark.parametrize("name", ["server", "insecure_channel", "secure_channel"])
def test_functions_have_the_parameters_of_grpc_aio(name: str) -> None:
    expected = inspect.signature(getattr(grpc.aio, name))
    actual = inspect.signature(getattr(pyserve.aio, name))
    assert list(expected.parameters) == list(actual.parameters)
    for key, parameter in expected.parameters.items():
        assert parameter.default == actual.parameters[key].default


def test_ssl_server_credentials_have_the_parameters_of_grpc() -> None:
    assert _parameters(grpc.ssl_server_credentials) == _parameters(
        pyserve.aio.ssl_server_credentials
    )


def test_every_public_name_of_grpc_aio_is_there() -> None:
    missing = set(grpc.aio.__all__) - set(pyserve.aio.__all__) - _OF_THE_C_LIBRARY
    assert {"ChannelArgumentType"} >= missing


def test_public_names_exist() -> None:
    assert all(hasattr(pyserve.aio, name) for name in pyserve.aio.__all__)
