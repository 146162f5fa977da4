"""Classes that nobody can call, which have deployments below them or work by themselves."""

import grpc
import pytest
from fastapi import FastAPI

import pyserve
from tests.contract.handles.apps import Holder, Single

api = FastAPI()


@pytest.mark.parity("S-02")
@pytest.mark.parametrize(
    "top", [Holder, pyserve.deployment(pyserve.ingress(api)())], ids=["class", "application"]
)
def test_a_class_without_a_public_method_is_deployed_with_what_is_below_it(deploy, top):
    handle = deploy(top.bind(Single.bind()))

    below = pyserve.get_deployment_handle("Single", handle.app_name)
    assert 8 == below.remote(7).result(timeout_s=30)
    with pytest.raises(pyserve.Abort, match="no method '__call__' that can be called; it has none"):
        handle.remote().result(timeout_s=30)


def test_the_error_of_a_missing_method_is_unimplemented(deploy):
    with pytest.raises(pyserve.Abort) as caught:
        deploy(Holder.bind()).remote().result(timeout_s=30)
    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code
