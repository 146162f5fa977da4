"""The messages of the check of a class about methods that do not fit their RPCs."""

from typing import Any

import pytest

import pyserve
from pyserve.errors import ServicerError
from pyserve.replica.checks import Method, check_class
from pyserve.replica.servicers import file_descriptors, find_services
from services.echo import echo_pb2, echo_pb2_grpc

SERVICE = "/services.echo.Echo"


def check(target: type) -> tuple[dict[str, Method], list[str]]:
    return check_class(target, find_services(target))


def mistakes(**methods: Any) -> str:
    target = type("Broken", (echo_pb2_grpc.EchoServicer,), methods)
    with pytest.raises(ServicerError) as raised:
        check(target)
    return str(raised.value)


async def unary(self: Any, request: Any, context: Any) -> Any: ...


async def without_context(self: Any, request: Any) -> Any: ...


async def generator(self: Any, request: Any, context: Any) -> Any:
    yield


async def returns_what_it_reads(self: Any, request: Any, context: Any) -> Any:
    return [request]


async def writes(self: Any, request: Any, context: Any) -> None:
    await context.write(request)


async def hands_on(self: Any, request: Any, context: Any) -> None:
    await writes(self, request, context)


async def writes_inside(self: Any, request: Any, context: Any) -> None:
    async def write() -> None:
        await context.write(request)

    await write()


async def raises(self: Any, request: Any, context: Any) -> Any:
    raise NotImplementedError


async def takes_all(self: Any, *args: Any) -> None:
    await writes(self, *args)


async def without_request(self: Any) -> Any: ...


async def with_extra(self: Any, request: Any, context: Any, third: Any) -> Any: ...


async def with_keyword(self: Any, request: Any, *, context: Any) -> Any: ...


def plain_with_timeout(self: Any, request: Any) -> Any: ...


pyserve.method(timeout_s=1)(plain_with_timeout)


@pyserve.batch
async def batched(self: Any, requests: list[Any]) -> list[Any]:
    return requests


@pyserve.batch
async def batched_with_contexts(self: Any, requests: list[Any], contexts: list[Any]) -> list[Any]:
    return requests


@pyserve.batch
async def batched_generator(self: Any, requests: list[Any]) -> Any:
    yield requests


def test_the_generated_servicers_are_found_behind_other_bases() -> None:
    class Base(echo_pb2_grpc.EchoServicer):
        pass

    class Derived(Base):
        pass

    (service,) = find_services(Derived)
    assert ("services.echo.Echo", echo_pb2_grpc.EchoServicer) == (service.name, service.base)
    assert "Converse" in service.methods


def test_a_class_without_a_generated_servicer_has_no_services() -> None:
    class Bare:
        pass

    assert () == find_services(Bare)


def test_methods_left_out_warn_once_with_their_signatures() -> None:
    target = type("Few", (echo_pb2_grpc.EchoServicer,), {"Echo": unary})
    implemented, warnings = check(target)
    assert [f"{SERVICE}/Echo"] == list(implemented)
    (warning,) = warnings
    assert "Few leaves out what follows of services.echo.Echo" in warning
    assert (
        "async def Converse(self, request_iterator: AsyncIterator[echo_pb2.PerformRequest], "
        "context) -> AsyncIterator[echo_pb2.PerformReply]:"
    ) in warning
    assert len(find_services(target)[0].methods) - 1 == warning.count("async def")


@pytest.mark.parametrize(
    ("method", "takes_context"),
    [
        (unary, True),
        (without_context, False),
        (batched, False),
        (batched_with_contexts, True),
        (staticmethod(lambda request, context: None), True),
        (staticmethod(lambda request: None), False),
        (classmethod(lambda cls, request, context=None: None), True),
        (lambda self, *args: None, True),
        (lambda self, request, context, extra=1: None, True),
    ],
)
def test_these_shapes_fit_a_unary_rpc(method: Any, takes_context: bool) -> None:
    target = type("Fits", (echo_pb2_grpc.EchoServicer,), {"Echo": method})
    assert takes_context == check(target)[0][f"{SERVICE}/Echo"].takes_context


@pytest.mark.parametrize("method", [writes, hands_on, writes_inside, raises, takes_all])
def test_these_shapes_fit_an_rpc_that_streams(method: Any) -> None:
    target = type("Fits", (echo_pb2_grpc.EchoServicer,), {"EchoStream": method})
    assert check(target)[0][f"{SERVICE}/EchoStream"].takes_context


@pytest.mark.parametrize("name", ["echo_stream", "EchoSteam", "echostream", "EchoStreams"])
def test_a_misspelt_method_is_named_with_file_line_and_signature(name: str) -> None:
    text = mistakes(**{name: generator})
    assert f"test_checks.py:{generator.__code__.co_firstlineno}" in text
    assert f"Broken.{name} is no method of services.echo.Echo, but EchoStream is" in text
    assert "async def EchoStream(self, request: echo_pb2.StreamRequest, context)" in text


@pytest.mark.parametrize("name", ["_EchoStream", "helper", "warmup", "check_health"])
def test_other_names_are_not_taken_for_misspelt_ones(name: str) -> None:
    check(type("Fine", (echo_pb2_grpc.EchoServicer,), {name: generator}))


@pytest.mark.parametrize(
    ("rpc", "method", "says"),
    [
        ("Echo", generator, "yields, but its RPC answers with one message; return it"),
        ("Echo", without_request, "takes nothing besides self"),
        ("Echo", with_extra, "takes request, context, third besides self"),
        ("Echo", with_keyword, "keyword-only parameter 'context'"),
        ("Echo", 3, "is no function but 3"),
        ("Echo", batched_generator, "yields, but its RPC answers with one message; return a list"),
        ("Echo", plain_with_timeout, "make it `async def`"),
        ("EchoStream", batched, "make it an async generator"),
        ("Collect", batched, "only single requests can be batched"),
        ("EchoStream", without_context, "has no context to write to"),
        ("EchoStream", unary, "it leaves its context alone"),
        ("EchoStream", returns_what_it_reads, "it leaves its context alone"),
        ("Collect", generator, "yields, but its RPC answers with one message"),
    ],
)
def test_a_wrong_kind_or_signature_says_what_to_write(rpc: str, method: Any, says: str) -> None:
    text = mistakes(**{rpc: method})
    assert says in text
    assert f"async def {rpc}(self, request" in text


def test_all_mistakes_are_told_at_once() -> None:
    text = mistakes(Echo=generator, Performm=unary)
    assert "Broken.Echo yields" in text
    assert "Broken.Performm is no method" in text


def test_files_are_listed_after_what_they_import() -> None:
    from google.protobuf import descriptor_pb2

    serialized = file_descriptors([echo_pb2.DESCRIPTOR, echo_pb2.DESCRIPTOR])
    names = [descriptor_pb2.FileDescriptorProto.FromString(each).name for each in serialized]
    assert ["google/protobuf/any.proto", echo_pb2.DESCRIPTOR.name] == names
