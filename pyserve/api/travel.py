"""Finds arguments of ``bind`` that cannot be pickled for a replica, and names them.

``run`` pickles code and arguments once, when everything is known. ``bind`` checks them here before,
so that the traceback leads to the line with the argument that cannot be pickled. The result of the
check is not kept, and at most the first MiB is pickled, so a model's weights are not copied twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from pyserve.api.modules import INGRESS_ATTRIBUTE, is_being_imported
from pyserve.api.pickling import Pickler
from pyserve.errors import PyserveError, UsageError

if TYPE_CHECKING:
    from pyserve.api.deployment import Application

# Bytes of the pickle that are checked; failures beyond are found by ``run``.
_LOOKED_AT_BYTES_MAX = 1 << 20
# Steps named from the argument to the culprit. Arbitrary: longer paths do not help readers.
_STEPS_MAX = 8
# Attributes that each class has of its own and that do not travel.
_HIDDEN = ("__dict__", "__weakref__")


def check_arguments(application: Application) -> None:
    """Refuse the arguments of a ``bind`` that cannot be pickled.

    Raises:
        UsageError: The text has the argument, the way down to the culprit, and its type.
    """
    named = {
        **{f"argument {place}": value for place, value in enumerate(application.args, 1)},
        **{f"argument {name!r}": value for name, value in application.kwargs.items()},
    }
    for name, value in named.items():
        if (error := _refusal(value)) is not None:
            _refuse(
                f"the arguments of {application.name}.bind(...)",
                _way_to(name, value),
                error,
                "Pass what describes the object (a path, a configuration) and make it in the "
                "constructor",
            )


def check_code(name: str, target: Any) -> None:
    """Refuse a class or function that would travel by value and cannot.

    Raises:
        UsageError: As of ``check_arguments``.
    """
    if (error := _refusal(target)) is not None:
        if hasattr(target, INGRESS_ATTRIBUTE) and is_being_imported():
            # The module may yet name its application, which is then imported.
            return
        _refuse(
            f"deployment {name!r}",
            _way_to(target.__qualname__, target),
            error,
            "Make it in the constructor, or put the code into a module, which replicas import",
        )


def check_interceptors(interceptors: object) -> None:
    """Refuse server interceptors that cannot be pickled.

    Raises:
        UsageError: As of ``check_arguments``.
    """
    if (error := _refusal(interceptors)) is not None:
        _refuse(
            "the interceptors of a deployment",
            _way_to("interceptors", interceptors),
            error,
            "Make in their methods what they need",
        )


def _refuse(what: str, culprit: str, error: Exception, advice: str) -> NoReturn:
    if isinstance(error, PyserveError):
        raise error
    raise UsageError(
        f"{what} cannot travel to the replicas: {culprit} cannot be pickled "
        f"({type(error).__name__}: {error}). {advice}"
    ) from error


def _way_to(name: str, value: object) -> str:
    """Return the way down to the part that cannot be pickled, and its type."""
    for _ in range(_STEPS_MAX):
        step = next(((n, part) for n, part in _parts(value) if _refusal(part) is not None), None)
        if step is None:
            break
        name, value = name + step[0], step[1]
    return f"{name}, a {type(value).__module__}.{type(value).__qualname__},"


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Return what a value consists of, each with what readers would write for it."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, FunctionType):
        used = inspect.getclosurevars(value)
        for names in (used.nonlocals, used.globals):
            yield from ((f", which uses {name}", part) for name, part in names.items())
    elif hasattr(value, "__dict__"):
        # Of a class its methods, with what they use.
        parts = cast("Mapping[str, object]", vars(value))
        hidden = (
            {"__dict__", "__weakref__", "__doc__", "__module__"} if inspect.isclass(value) else ()
        )
        yield from ((f".{name}", part) for name, part in parts.items() if name not in hidden)


def _refusal(value: object) -> Exception | None:
    """Return why a value cannot be pickled; ``None``: it can, as far as was looked."""
    try:
        _Asking(_Sink(), protocol=5, buffer_callback=_out_of_band).dump(value)
    except _Enough:
        return None
    except Exception as error:
        return error
    return None


def _out_of_band(_buffer: object) -> None:
    """Leave an array's memory where it is."""


class _Enough(Exception):
    """More was written than is looked at."""


class _Sink:
    """A file that counts what it is given, and keeps nothing."""

    def __init__(self) -> None:
        self._left_bytes = _LOOKED_AT_BYTES_MAX

    def write(self, data: bytes) -> int:
        """Take a piece."""
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise _Enough
        return len(data)


class _Asking(Pickler):
    """Skips the objects that reach replicas in another way."""

    def reducer_override(self, value: Any) -> Any:
        from pyserve.api.deployment import Application
        from pyserve.api.handles.handle import DeploymentHandle
        from pyserve.api.handles.objects import ObjectRef

        if isinstance(value, Application | DeploymentHandle | ObjectRef):
            return _nothing, ()
        return super().reducer_override(value)


def _nothing() -> None:
    """The placeholder for a value that is skipped."""
