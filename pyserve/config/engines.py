"""Environment variables for engines of other projects and for the servers that they start."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyserve.errors import OptionError


def api_key(variable: str) -> str:
    """Return the API key from an environment variable.

    Raises:
        OptionError: The variable is not set, or empty.
    """
    key = os.environ.get(variable)
    if not key:
        raise OptionError(
            f"the environment variable {variable} has no API key; set it where replicas run, by "
            f"the deployment's env_vars for example"
        )
    return key


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with changes, for a server that it starts."""
    return {**os.environ, **changes}


def let_threads_sleep() -> None:
    """Let idle threads of OpenMP sleep, unless the user has configured it otherwise.

    Call it before a library with OpenMP is loaded, since that reads the variable.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
