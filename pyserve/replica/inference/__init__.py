"""Serves a model that declares its tensors, by the Open Inference Protocol."""

from pyserve.replica.inference.doors import InferenceDoors

__all__ = ["InferenceDoors"]
