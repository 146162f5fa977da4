"""``batching_config``: batches for methods that have no decorator."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyserve.batching import Batched, BatchOptions, make_batched
from pyserve.errors import UsageError
from pyserve.replica.checks import Method, where

if TYPE_CHECKING:
    from pyserve.api.code import Code
    from pyserve.config import BatchingConfig

_CALL = "__call__"


def batched_methods(target: Code, config: BatchingConfig) -> dict[str, Batched[Any]]:
    """Return the batched form of every method that ``config`` names, by name.

    The methods themselves stay as they are: code of the class that calls one of them passes
    and gets lists.

    Raises:
        UsageError: There is no such method, or it cannot be batched; the text says why.
    """
    options = BatchOptions(
        max_batch_size=config.max_batch_size,
        batch_wait_timeout_s=config.timeout_s,
        stride_s=config.stride_s,
        allow_small_batch=config.allow_small_batch,
        max_concurrent_batches=config.max_concurrent_batches,
    )
    names = config.methods or (_CALL,)
    if not isinstance(target, type):
        if names != (_CALL,):
            raise UsageError(
                f"batching_config: {target.__qualname__} is a function, which has no methods; "
                f"leave `methods` out"
            )
        return {_CALL: make_batched(_unbatched(target, target.__qualname__), options)}
    return {
        name: make_batched(
            _unbatched(_static(target, name), f"{target.__qualname__}.{name}"), options
        )
        for name in names
    }


def with_batched_rpcs(
    methods: Mapping[str, Method], batched: Mapping[str, Batched[Any]]
) -> dict[str, Method]:
    """Return the RPCs by path, those that ``batching_config`` names in their batched form.

    Raises:
        UsageError: One of them takes a stream of requests.
    """
    found: dict[str, Method] = {}
    for path, method in methods.items():
        form = batched.get(method.descriptor.name)
        if form is not None and method.descriptor.client_streaming:
            raise UsageError(
                f"batching_config: {where(method.function)}: {method.descriptor.name} takes a "
                f"stream of requests; only single requests can be batched"
            )
        found[path] = method if form is None else replace(method, function=form)
    return found


def _static(target: type, name: str) -> object:
    missing = object()
    static: object = inspect.getattr_static(target, name, missing)
    if static is not missing:
        return static
    known = [each for each in dir(target) if not each.startswith("_")]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "name the methods to batch in `methods`"
    raise UsageError(f"batching_config: {target.__qualname__} has no method {name!r}; {hint}")


def _unbatched(static: object, label: str) -> Callable[..., Any]:
    if isinstance(static, Batched):
        raise UsageError(
            f"batching_config: {where(static)}: {label} has @pyserve.batch already; keep one of "
            f"the two"
        )
    if not inspect.isfunction(static):
        raise UsageError(
            f"batching_config: {label} is {static!r}; only methods written as `def` or "
            f"`async def`, and no static ones, can be batched"
        )
    return static
