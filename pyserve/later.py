"""Names of Ray Serve that are missing here.

Names of a later release can be imported, and raise an error when used. Names without a counterpart
are missing, and the error says what to write instead.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, NoReturn, Self

from pyserve.errors import NotYetSupported


class Later:
    """Base of such classes: annotations may name them, but they cannot be instantiated.

    Attributes:
        instead: What to do until then.
    """

    instead: ClassVar[str] = ""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        ours = next(each for each in cls.__mro__ if each.__module__.startswith("pyserve."))
        raise refuse(f"{ours.__module__}.{ours.__name__}", cls.instead)


def refuse(name: str, instead: str) -> NotYetSupported:
    """Return the error for the use of ``name``; the caller raises it."""
    return NotYetSupported(f"{name} comes with a later release of pyserve; until then {instead}")


def refused(name: str, instead: str) -> NoReturn:
    """Raise the error for the call of a function.

    Raises:
        NotYetSupported: Always.
    """
    raise refuse(name, instead)


_PAGE = "docs/reference/ray-serve.md"
_ABSENT = {
    "build": "`pyserve build module:app` writes the file",
    "connect": "run, status and handles find the mesh that runs by themselves",
    "get_deployment": "write pyserve.get_app_handle(name) or pyserve.get_deployment_handle(name)",
    "get_deployment_actor_context": (
        "get_replica_context() in a deployment actor has its application, and as deployment the "
        "name of its deployment, a dot and its own"
    ),
    "get_trace_context": "write opentelemetry.context.get_current(), which has the call's span",
    "list_deployments": "pyserve.status() has the applications with their deployments",
}


def absence(module: str, name: str) -> Exception:
    """Return the error for a name that a module lacks; its ``__getattr__`` raises it.

    For names of Ray Serve that ``from package import name`` asks for it is an ``ImportError``:
    the statement would keep the text of an ``AttributeError`` to itself.
    """
    reason = _ABSENT.get(name)
    if reason is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    text = f"{module} has no {name}: {reason}; see {_PAGE}"
    asks = sys._getframe(2).f_code.co_name  # noqa: SLF001  # There is no other way to know.
    return ImportError(text) if asks == "_handle_fromlist" else AttributeError(text)
