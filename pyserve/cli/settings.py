"""Which mesh a command speaks to."""

from __future__ import annotations

from dataclasses import replace

from pyserve.config import MeshSettings, check_address, read_settings


def settings_for(controller: str | None) -> MeshSettings:
    """Return the environment's settings, with the controller that an option names.

    Raises:
        OptionError: The address cannot be one.
    """
    settings = read_settings()
    if controller is None:
        return settings
    return replace(settings, controller=check_address("--controller", controller, unix=True))
