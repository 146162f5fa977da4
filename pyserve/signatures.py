"""Signatures of user code, also if its annotations name things that only type checkers import."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any

_LENIENT: dict[str, Any] = {}
_LENIENT_ANNOTATIONS: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    # Annotations are evaluated lazily; names that are missing stay references.
    from annotationlib import Format

    _LENIENT["annotation_format"] = Format.FORWARDREF
    _LENIENT_ANNOTATIONS["format"] = Format.FORWARDREF


def read_signature(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature, with references in place of annotations whose names are missing.

    Raises:
        TypeError, ValueError: It is not a function, or is written in C without a signature.
    """
    return inspect.signature(function, **_LENIENT)


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations as they are; those whose names are missing as their text."""
    kept = inspect.get_annotations(function, **_LENIENT_ANNOTATIONS)
    return {name: text_of_reference(each) for name, each in kept.items()}


def text_of_reference(annotation: Any) -> Any:
    """Return the text of a reference, and any other annotation as it is."""
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return annotation
