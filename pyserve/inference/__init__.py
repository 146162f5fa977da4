"""The Open Inference Protocol: models that declare their tensors; see ``model``.

Needs numpy, which is loaded with the first of these names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.inference.declaration import Model, model, model_of
    from pyserve.inference.tensors import DATATYPES, Tensor

__all__ = ["DATATYPES", "Model", "Tensor", "model", "model_of"]

_TENSORS = ("DATATYPES", "Tensor")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "pyserve.inference.tensors" if name in _TENSORS else "pyserve.inference.declaration"
    return getattr(importlib.import_module(module), name)
