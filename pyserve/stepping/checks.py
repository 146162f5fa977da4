"""Checks classes of ``@pyserve.continuous`` when they are imported."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pyserve.errors import KindError
from pyserve.signatures import read_signature
from pyserve.stepping.streams import batches_itself

_ONE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# Options and methods that have no meaning without steps.
_OF_STEPS = frozenset(
    ("step_ms", "isolate", "max_keys", "park_s", "max_preempts", "step_in", "resume_elsewhere")
)
_METHODS_OF_STEPS = ("key", "preempt", "resume")
# What is used as it is returned: nothing awaits it.
_PLAIN = ("release", "cost", "bound", "key", "client", "priority", "preempt")
# These may be async; a generator of theirs would never run. That of `admit` may be a state.
_NO_GENERATORS = (*_PLAIN, "step", "setup")


def check_class(target: Any, given: Mapping[str, object]) -> None:
    """Check that a class has what its requests are answered by.

    Args:
        target: The class.
        given: The options that its decorator names.

    Raises:
        KindError: It lacks something, or has something that contradicts the rest.
    """
    if not isinstance(target, type):
        raise KindError(
            f"@pyserve.continuous decorates a class, not {target!r}; write it below "
            f"@pyserve.deployment"
        )
    name = target.__qualname__
    if not callable(getattr(target, "admit", None)):
        raise KindError(
            f"@pyserve.continuous on {name}: it has no admit, which returns the state of one "
            f"request"
        )
    admit: Any = inspect.getattr_static(target, "admit")
    is_static = isinstance(admit, staticmethod)
    admit = getattr(target, "admit")  # noqa: B009 (types have none for checkers)
    parameters = [*read_signature(admit).parameters.values()][0 if is_static else 1 :]
    yields = inspect.isasyncgenfunction(inspect.unwrap(admit))
    if batches_itself(target):
        _check_engine(target, len(parameters), given, yields=yields)
        most = 1 if yields else 2
    elif yields:
        raise KindError(
            f"@pyserve.continuous on {name}: its admit yields, which is for classes whose own "
            f"engine batches, and have no step; let it return a state, or leave step out"
        )
    else:
        most = 1
    if len(parameters) != most or any(each.kind not in _ONE for each in parameters):
        found = ", ".join(map(str, parameters)) or "nothing"
        raise KindError(
            f"@pyserve.continuous on {name}: admit takes {found} besides self; let it take the "
            f"request alone"
        )
    _check_kinds(target)
    if hasattr(target, "preempt") != hasattr(target, "resume"):
        raise KindError(
            f"@pyserve.continuous on {name}: preempt and resume belong together; write both"
        )
    if given.get("step_in") == "process" and inspect.iscoroutinefunction(
        getattr(target, "step", None)
    ):
        raise KindError(
            f"@pyserve.continuous on {name}: its step is async, which runs on the event loop; for "
            f"step_in='process' let it be a plain def"
        )
    if given.get("resume_elsewhere") is True and not hasattr(target, "preempt"):
        raise KindError(
            f"@pyserve.continuous on {name}: resume_elsewhere needs preempt and resume, which make "
            f"a snapshot and a state again; write both"
        )


def _check_kinds(target: type) -> None:
    """Check that methods return what they say, and not something to await or to iterate."""
    name = target.__qualname__
    for method in _NO_GENERATORS:
        found: Any = getattr(target, method, None)
        if not inspect.isroutine(found):  # It has none, or an attribute of that name.
            continue
        if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
            raise KindError(
                f"@pyserve.continuous on {name}: its {method} yields, and nothing would iterate "
                f"that; let it return its result"
            )
        if method in _PLAIN and inspect.iscoroutinefunction(found):
            raise KindError(
                f"@pyserve.continuous on {name}: its {method} is async, and nothing would await "
                f"it; {_in_place_of_async(target, method)}"
            )


def _in_place_of_async(target: type, method: str) -> str:
    if method == "release" and batches_itself(target):
        return "let it be a plain def, which runs on the event loop and may start a task there"
    if method in ("release", "preempt"):
        return "let it be a plain def"
    return "let it be a plain def, and await in admit, which may be async"


def _check_engine(
    target: type, parameters: int, given: Mapping[str, object], *, yields: bool
) -> None:
    """Check a class without ``step``, whose own engine batches."""
    name = target.__qualname__
    if not yields and parameters != 2:  # The request and the callback.
        raise KindError(
            f"@pyserve.continuous on {name}: it has no step, which makes one step for a list of "
            f"states; write it, or, if its own engine batches, let admit yield the values of one "
            f"request (async def with yield) or take (request, emit)"
        )
    options = sorted(_OF_STEPS & given.keys())
    if options:
        raise KindError(
            f"@pyserve.continuous on {name}: {', '.join(options)} is about steps, and {name} has "
            f"no step, since its own engine batches; leave it out"
        )
    for method in _METHODS_OF_STEPS:
        if callable(getattr(target, method, None)):
            raise KindError(
                f"@pyserve.continuous on {name}: {method} is about steps, and {name} has no step, "
                f"since its own engine batches; remove it"
            )
