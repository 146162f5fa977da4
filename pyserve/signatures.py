"""What user code takes, also where its annotations name what only type checkers import."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from typing import Any

_LENIENT: dict[str, Any] = {}
_LENIENT_ANNOTATIONS: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    # Annotations are evaluated when somebody looks; what is missing stays a reference.
    from annotationlib import Format

    _LENIENT["annotation_format"] = Format.FORWARDREF
    _LENIENT_ANNOTATIONS["format"] = Format.FORWARDREF


def read_signature(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature, with references in the place of annotations that name nothing.

    Raises:
        TypeError, ValueError: The function is none, or written in C without a signature.
    """
    return inspect.signature(function, **_LENIENT)


def annotations_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations as they are kept; those that name nothing as their text."""
    kept = inspect.get_annotations(function, **_LENIENT_ANNOTATIONS)
    return {name: text_of_reference(each) for name, each in kept.items()}


def text_of_reference(annotation: Any) -> Any:
    """Return the text of a reference, and any other annotation as it is."""
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return annotation
