"""What cannot go to a replica is refused where it is written, and named."""

import threading
from typing import Any

import numpy as np
import pytest

import pyserve
from pyserve.api.deployment import Deployment
from pyserve.errors import UsageError

LOCK = threading.Lock()


class Client:
    """Holds what cannot be pickled, two steps down."""

    def __init__(self) -> None:
        self.parts = {"guard": threading.Lock()}


class Interceptor:
    """Stands for one of grpc.aio's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@pyserve.deployment
class Taker:
    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self) -> None:
        pass


@pyserve.deployment
class UsesGlobal:
    """Reachable by its module, so that what it uses does not travel."""

    def __call__(self) -> bool:
        return LOCK.locked()


def local(body: Any) -> Deployment[Any]:
    """Return a deployment of a class that no module has."""
    made: Any = type("Local", (), {"__call__": body, "__module__": __name__})
    found: Deployment[Any] = pyserve.deployment(made)
    return found


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((1, threading.Lock()), {}, r"argument 2, a _thread\.lock, cannot be pickled"),
        ((), {"client": Client()}, r"argument 'client'\.parts\['guard'\], a _thread\.lock,"),
        (([0, (letter for letter in "")],), {}, r"argument 1\[1\], a builtins\.generator,"),
        ((lambda: LOCK,), {}, r"argument 1, which uses LOCK, a _thread\.lock,"),
    ],
)
def test_an_argument_is_refused_by_bind(args: Any, kwargs: Any, said: str):
    with pytest.raises(UsageError, match=rf"of Taker\.bind\(\.\.\.\) cannot travel.*{said}"):
        Taker.bind(*args, **kwargs)


def test_a_local_class_is_refused_by_bind_with_what_it_uses():
    guard = threading.Lock()

    with pytest.raises(UsageError, match=r"deployment 'Local' cannot.*, which uses guard, a _thr"):
        local(lambda self: guard.locked()).bind()


def test_a_class_of_a_module_may_use_what_it_likes():
    assert "UsesGlobal" == UsesGlobal.bind().name


def test_interceptors_are_refused_by_the_decorator():
    with pytest.raises(UsageError, match=r"interceptors\[0\]\.lock, a _thread\.lock,"):
        pyserve.deployment(interceptors=[Interceptor()])
    with pytest.raises(UsageError, match=r"interceptors\[0\]\.lock"):
        Taker.options(interceptors=[Interceptor()])


def test_what_goes_in_another_way_is_not_looked_at():
    """Asking must not hand a reference over, nor pack another application."""
    reference = pyserve.ObjectRef.__new__(pyserve.ObjectRef)  # Without anything to hand over.

    bound = Taker.bind(Taker.bind(), pyserve.DeploymentHandle("A", "b"), [reference])

    assert 3 == len(bound.args)


def test_large_arguments_are_not_copied():
    """Neither the memory of an array, nor all of a text."""

    class Counting:
        asked = 0

        def __reduce__(self) -> Any:
            Counting.asked += 1
            return str, ()

    Taker.bind([np.zeros(1 << 24), bytes(1 << 24), Counting()])

    assert 0 == Counting.asked


@pytest.mark.parametrize("is_local", [True, False])
def test_two_web_applications_are_refused_before_a_mesh_is_looked_for(is_local: bool):
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    @pyserve.deployment
    @pyserve.ingress(app)
    class Inner:
        pass

    @pyserve.deployment
    @pyserve.ingress(app)
    class Outer:
        def __init__(self, inner: object) -> None:
            pass

    with pytest.raises(UsageError, match=r"on Inner and Outer, .* route_prefix"):
        pyserve.run(Outer.bind(Inner.bind()), local_testing_mode=is_local)


def test_one_web_application_may_stand_behind_a_plain_class():
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    @pyserve.deployment
    @pyserve.ingress(app)
    class Inner:
        pass

    handle = pyserve.run(Taker.bind(Inner.bind()), local_testing_mode=True)

    assert "Taker" == handle.deployment_name
    pyserve.shutdown()
