"""Which mesh a command speaks to, and what several commands' options have in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pyserve.config import MeshSettings, check_address, read_settings

# Of an option that names a file with certificates or a key.
PEM_FILE: dict[str, Any] = {
    "metavar": "FILE",
    "type": click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
}


def settings_for(controller: str | None) -> MeshSettings:
    """Return the environment's settings, with the controller that an option names.

    Raises:
        OptionError: The address cannot be one.
    """
    settings = read_settings()
    if controller is None:
        return settings
    address = check_address("--controller", controller, unix=True)
    return replace(settings, controller=address, controller_is_of="--controller")
