"""The files that reflection shows: ours, the deployments', and contradictions survived."""

import logging

import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2

from pyserve.gateway.descriptors import build_pools, reflection_servicer
from services.echo import echo_pb2


def file(name, message, *, package="shop", needs=(), extends=""):
    """Return a file with a message and a service, both of one name."""
    proto = descriptor_pb2.FileDescriptorProto(name=name, package=package, dependency=needs)
    proto.message_type.add(name=message).extension_range.add(start=100, end=200)
    proto.service.add(name=f"{message}Service").method.add(
        name="Call", input_type=f".{package}.{message}", output_type=f".{package}.{message}"
    )
    if extends:
        proto.extension.add(
            name="more", number=100, label="LABEL_OPTIONAL", type="TYPE_BOOL", extendee=extends
        )
    return proto.SerializeToString()


async def answer_of(sources, services=(), **request):
    """Return what reflection answers to one request."""

    async def requests():
        yield reflection_pb2.ServerReflectionRequest(**request)

    servicer = reflection_servicer(services, sources)
    [answer] = [each async for each in servicer.ServerReflectionInfo(requests(), None)]
    return answer


async def messages_of(sources, symbol):
    """Return the messages in the files that define a symbol."""
    answer = await answer_of(sources, file_containing_symbol=symbol)
    files = answer.file_descriptor_response.file_descriptor_proto
    parsed = map(descriptor_pb2.FileDescriptorProto.FromString, files)
    return {f"{each.package}.{message.name}" for each in parsed for message in each.message_type}


@pytest.mark.parametrize(
    "service",
    [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ],
)
def test_pool_knows_the_ingress_own_services(service, caplog):
    [pool] = build_pools(())
    found = pool.FindServiceByName(service)

    assert service == found.full_name
    (package, _) = service.rsplit(".", 1)
    for method in found.methods:
        assert package == method.input_type.file.package
    assert [] == caplog.records


def test_pool_knows_what_deployments_sent():
    file = echo_pb2.DESCRIPTOR
    files = [*(item.serialized_pb for item in file.dependencies), file.serialized_pb]

    [pool] = build_pools([files, files * 2])

    assert pool.FindServiceByName("services.echo.Echo").methods


async def test_applications_may_have_files_of_one_name(caplog):
    """The file that depends on one of two is shown with its own one."""
    one, two = (
        [
            file("common.proto", message, package=package),
            file("api.proto", "Api", package=package, needs=["common.proto"]),
        ]
        for package, message in (("one", "First"), ("two", "Second"))
    )

    for sources in ([one, two], [two, one], [one, two, one]):
        assert {"one.First", "one.Api"} == await messages_of(sources, "one.ApiService")
        assert {"two.Second", "two.Api"} == await messages_of(sources, "two.ApiService.Call")
    assert [] == caplog.records


async def test_applications_may_define_one_symbol_differently(caplog):
    one = [file("one.proto", "Same"), file("left.proto", "Left")]
    two = [file("two.proto", "Same"), file("right.proto", "Right")]

    assert {"shop.Right"} == await messages_of([one, two], "shop.RightService")
    assert {"shop.Left"} == await messages_of([one, two], "shop.LeftService")
    assert [] == caplog.records


async def test_extensions_are_found_in_the_pool_of_their_message():
    one = [file("api.proto", "Api", package="one")]
    two = [
        file("api.proto", "Api", package="two"),
        file("more.proto", "More", package="two", needs=["api.proto"], extends=".two.Api"),
    ]

    answer = await answer_of([one, two], all_extension_numbers_of_type="two.Api")
    assert [100] == answer.all_extension_numbers_response.extension_number
    asked = {"containing_type": "two.Api", "extension_number": 100}
    answer = await answer_of([one, two], file_containing_extension=asked)
    assert 2 == len(answer.file_descriptor_response.file_descriptor_proto)


async def test_services_without_a_file_are_not_listed():
    """Clients ask for the file of each, and grpcui stops at one that has none."""
    services = ["shop.OneService", "shop.Plain"]
    answer = await answer_of([[file("a.proto", "One")]], services, list_services="")
    assert ["shop.OneService"] == [each.name for each in answer.list_services_response.service]


async def test_a_symbol_that_nobody_defines_is_not_found():
    answer = await answer_of([], file_containing_symbol="no.Service")
    assert answer.error_response.error_message


@pytest.mark.parametrize(
    "files",
    [
        [file("a.proto", "Same"), file("a.proto", "New"), file("c.proto", "Other")],
        [file("a.proto", "Same"), file("b.proto", "Same"), file("c.proto", "Other")],
    ],
)
async def test_a_file_that_contradicts_another_of_its_deployment_hides_nothing_else(files, caplog):
    caplog.set_level(logging.WARNING)

    assert {"shop.Other"} == await messages_of([files], "shop.OtherService")
    assert {"shop.Same"} == await messages_of([files], "shop.SameService")
    assert "a.proto" in caplog.text
