"""Type variables with a default, so that a handle may be annotated without parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Deployed_co = TypeVarWithDefault("Deployed_co", covariant=True, default=Any)
    Result_co = TypeVarWithDefault("Result_co", covariant=True, default=Any)
else:
    Deployed_co = TypeVar("Deployed_co", covariant=True)
    Result_co = TypeVar("Result_co", covariant=True)

__all__ = ["Deployed_co", "Result_co"]
