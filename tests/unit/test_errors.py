"""The tree of exceptions: each with a status and a retry decision, and drawn at the top."""

import inspect
import pickle
import re

import grpc
import pytest

from pyserve import errors, exceptions

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.PyserveError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_a_retry_decision(kind: type[errors.PyserveError]) -> None:
    assert isinstance(kind.code, grpc.StatusCode)
    assert isinstance(kind.retryable, bool)
    assert kind.__doc__


def test_the_drawing_shows_every_class_below_its_base() -> None:
    assert errors.__doc__ is not None
    lines = re.findall(r"^    ((?:[│ ]   )*)[├└]── (\w+)", errors.__doc__, re.MULTILINE)
    path = ["PyserveError"]
    drawn: dict[str, str] = {}
    for indent, name in lines:
        path[len(indent) // 4 + 1 :] = [name]
        drawn[name] = path[-2]
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in CLASSES[1:]}


RAY_SERVE_NAMES = {
    "BackPressureError": errors.BackPressure,
    "DeploymentUnavailableError": errors.DeploymentUnavailable,
    "RayServeException": errors.PyserveError,
    "ReplicaUnavailableError": errors.DeploymentUnavailable,
    "RequestCancelledError": errors.RequestCancelled,
}


def test_the_module_for_users_of_ray_serve_has_all_of_them() -> None:
    assert {kind.__name__ for kind in CLASSES} | RAY_SERVE_NAMES.keys() == set(exceptions.__all__)
    for name, kind in RAY_SERVE_NAMES.items():
        assert kind is getattr(exceptions, name)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.BatchError, TypeError),
        (errors.DeploymentFailed, RuntimeError),
        (errors.KindError, TypeError),
        (errors.NotInReplica, RuntimeError),
        (errors.OptionError, ValueError),
        (errors.RequestTimeout, TimeoutError),
        (errors.WrongMoment, RuntimeError),
    ],
)
def test_those_that_expect_built_in_types_catch_ours(
    kind: type[errors.PyserveError], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)


def test_an_abort_needs_a_code_that_is_not_ok() -> None:
    with pytest.raises(ValueError, match="must not be OK"):
        errors.Abort(grpc.StatusCode.OK)
    with pytest.raises(TypeError, match=r"grpc\.StatusCode, not 5"):
        errors.Abort(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        errors.Abort(grpc.StatusCode.NOT_FOUND, "gone", [("key", "value")]),
        errors.DeploymentFailed("Echo", "it raised", "Traceback ..."),
        errors.MeshNotFound("no mesh runs here"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: errors.PyserveError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(error), str(error), error.code) == (type(copy), str(copy), copy.code)
