"""Documents of OpenAPI as a validator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator


def problems_of(document: Mapping[str, Any]) -> list[str]:
    """Return what a validator has against a document of OpenAPI 3.1."""
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in OpenAPIV31SpecValidator(dict(document)).iter_errors()
    ]
