"""The files that reflection shows: ours, the deployments', and contradictions survived."""

import logging

import pytest
from google.protobuf import descriptor_pb2

from pyserve.gateway.descriptors import build_pool
from services.echo import echo_pb2


def file(name, message):
    proto = descriptor_pb2.FileDescriptorProto(name=name, package="shop")
    proto.message_type.add(name=message)
    return proto.SerializeToString()


@pytest.mark.parametrize(
    "service",
    [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ],
)
def test_pool_knows_the_ingress_own_services(service, caplog):
    found = build_pool(()).FindServiceByName(service)

    assert service == found.full_name
    (package, _) = service.rsplit(".", 1)
    for method in found.methods:
        assert package == method.input_type.file.package
    assert [] == caplog.records


def test_pool_knows_what_deployments_sent():
    file = echo_pb2.DESCRIPTOR
    files = [*(item.serialized_pb for item in file.dependencies), file.serialized_pb]

    pool = build_pool(files * 2)

    assert pool.FindServiceByName("services.echo.Echo").methods


def test_files_of_one_name_and_different_content_are_reported_and_the_first_is_shown(caplog):
    caplog.set_level(logging.WARNING)

    pool = build_pool([file("shop.proto", "Old"), file("shop.proto", "New")])

    assert "shop.proto" in caplog.text
    assert "shop.Old" == pool.FindMessageTypeByName("shop.Old").full_name


def test_file_that_contradicts_another_hides_nothing_else(caplog):
    caplog.set_level(logging.WARNING)
    files = [file("a.proto", "Same"), file("b.proto", "Same"), file("c.proto", "Other")]

    pool = build_pool(files)

    assert "b.proto" in caplog.text
    assert "shop.Other" == pool.FindMessageTypeByName("shop.Other").full_name
