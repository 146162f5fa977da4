"""The Open Inference Protocol: models that declare their tensors; see ``model``.

Needs numpy.
"""

from pyserve.inference.model import Model, model, model_of
from pyserve.inference.tensors import DATATYPES, Tensor

__all__ = ["DATATYPES", "Model", "Tensor", "model", "model_of"]
