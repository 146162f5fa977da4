"""The variables of this process that also apply to replicas on other machines."""

from __future__ import annotations

from collections.abc import Collection

from pyserve.config import inherited_environment

# Variables of this machine or process, rather than of the whole mesh.
_OF_THIS_PROCESS = frozenset(
    {
        *("ADVERTISE_HOST", "BIND_HOST", "CONTROLLER", "HOME", "LAUNCHER", "LAUNCHER_OPTIONS"),
        *("NODE_ID", "RUN_DIR", "TOKEN_FILE", "ZONE"),
    }
)


def mesh_variables(*more: str, but: Collection[str] = ()) -> dict[str, str]:
    """Return the variables of this process that apply to every replica of its mesh.

    Args:
        more: prefixes of others than pyserve's own.
        but: names after ``PYSERVE_`` that hold for this process alone, where its replicas run.
    """
    left_out = {f"PYSERVE_{name}" for name in (*_OF_THIS_PROCESS, *but)}
    return {
        name: value
        for name, value in inherited_environment({}).items()
        if name.startswith(("PYSERVE_", *more)) and name not in left_out
    }
