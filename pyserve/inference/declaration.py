"""``@pyserve.inference.model``: a class whose ``infer`` takes and returns named tensors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyserve.batching import Batched
from pyserve.errors import UsageError
from pyserve.inference.tensors import Array, Tensor, as_array
from pyserve.signatures import read_signature
from pyserve.types import MODEL_ATTRIBUTE

Target = TypeVar("Target", bound=type)

METHOD = "infer"
PLATFORM = "pyserve"
# It is a segment of a path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A deployment's declaration of its model.

    Attributes:
        name: What clients call it.
        versions: Those that clients may ask for; the first one is answered as served.
        inputs, outputs: In the order in which metadata lists them.
        platform: What metadata says about it.
    """

    name: str
    versions: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    platform: str = PLATFORM

    @property
    def prefix(self) -> str:
        """Where plain HTTP finds it."""
        return f"/v2/models/{self.name}"

    def pack(self, result: object) -> dict[str, Array]:
        """Return what ``infer`` gave as arrays by name.

        A mapping names its outputs; a tuple or list has them in order; anything else is the only
        output. Declared outputs may be left out of a mapping.

        Raises:
            TypeError: Names, number, types or shapes are not as declared.
        """
        if isinstance(result, Mapping):
            values = dict(result)
        elif isinstance(result, tuple | list) and len(self.outputs) > 1:
            if len(result) != len(self.outputs):
                raise TypeError(
                    f"{METHOD} returned {len(result)} outputs, {len(self.outputs)} are declared"
                )
            values = {
                tensor.name: value for tensor, value in zip(self.outputs, result, strict=True)
            }
        elif len(self.outputs) == 1:
            values = {self.outputs[0].name: result}
        else:
            raise TypeError(
                f"{METHOD} returned {type(result).__name__}; return a dict of "
                f"{', '.join(tensor.name for tensor in self.outputs)}"
            )
        declared = {tensor.name: tensor for tensor in self.outputs}
        if unknown := values.keys() - declared.keys():
            raise TypeError(f"{METHOD} returned {sorted(unknown)}, which is not declared")
        return {name: as_array(declared[name], value) for name, value in values.items()}


def model(
    *,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: str | None = None,
    versions: Sequence[str] = ("1",),
    platform: str = PLATFORM,
) -> Callable[[Target], Target]:
    """Serve a class by the Open Inference Protocol (version 2), over gRPC and HTTP.

    The class has a method ``infer`` with one parameter for each input; it gets numpy arrays
    (``BYTES`` as an array of ``bytes`` objects, ``BF16`` as float32) and returns a dict of arrays
    by output, a tuple in their order, or the only one. It may be ``async def``, ``def``, batched
    (then every parameter is a list of arrays), or yield: each step is then one answer of
    ``ModelStreamInfer``. Stands below ``@pyserve.deployment``.

    Args:
        inputs: Names, datatypes and shapes of what ``infer`` takes.
        outputs: The same of what it returns.
        name: What clients call the model; by default the class's name.
        versions: The versions that clients may name.
        platform: Free text of the model's metadata.

    Raises:
        UsageError: ``infer`` is missing or has other parameters; names are not unique.
    """

    def mark(target: Target) -> Target:
        if not inspect.isclass(target):
            raise UsageError(f"@inference.model decorates a class, not {target!r}")
        declared = Model(
            name=target.__name__ if name is None else name,
            versions=tuple(versions),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            platform=platform,
        )
        _check(target, declared)
        setattr(target, MODEL_ATTRIBUTE, declared)
        return target

    return mark


def model_of(target: object) -> Model | None:
    """Return what a class declares, ``None`` if it declares no model."""
    found = getattr(target, MODEL_ATTRIBUTE, None)
    return found if isinstance(found, Model) else None


def _check(target: type, declared: Model) -> None:
    where = f"@inference.model on {target.__qualname__}"
    if not _NAME.match(declared.name):
        raise UsageError(
            f"{where}: the name {declared.name!r} cannot be part of a path; use letters, digits, "
            f"'.', '_' and '-'"
        )
    if not declared.versions or not all(map(_NAME.match, declared.versions)):
        raise UsageError(f"{where}: versions {declared.versions} must be one or more names")
    for kind, tensors in (("inputs", declared.inputs), ("outputs", declared.outputs)):
        names = [tensor.name for tensor in tensors]
        if len(names) != len(set(names)) or not names:
            raise UsageError(f"{where}: the names of {kind} must be unique, and at least one")
    method = inspect.getattr_static(target, METHOD, None)
    function = method.function if isinstance(method, Batched) else method
    if not callable(function):
        raise UsageError(f"{where}: it has no method {METHOD}")
    expected = {tensor.name: None for tensor in declared.inputs}
    try:
        read_signature(function).bind(None, **expected)
        read_signature(function).bind(
            None, **{tensor.name: None for tensor in declared.inputs if not tensor.optional}
        )
    except TypeError as error:
        raise UsageError(
            f"{where}: {METHOD}{read_signature(function)} does not take the inputs "
            f"{', '.join(expected)}: {error}"
        ) from None
