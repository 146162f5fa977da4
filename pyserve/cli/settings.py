"""Which mesh a command speaks to, and what several commands' options have in common."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyserve.config import MeshSettings, check_address, read_settings
from pyserve.config.validation import SECONDS_MAX

if TYPE_CHECKING:
    from pyserve.driver.session import Session

# Of an option that names a file with certificates or a key.
PEM_FILE: dict[str, Any] = {
    "metavar": "FILE",
    "type": click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
}


class Seconds(click.FloatRange):
    """A time as an option's value, at least (or above) 0 and at most a year."""

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(min=0, max=SECONDS_MAX, min_open=min_open)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse what is no number too: it compares as false with both bounds."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return found


def open_mesh(controller: str | None, advice: str) -> Session:
    """Return a session of the mesh that a command speaks to; the caller ends it.

    Args:
        controller: What ``--controller`` names.
        advice: What to do if no mesh runs.

    Raises:
        MeshNotFound: None does.
        OptionError: The address cannot be one.
    """
    # Commands that need no mesh start without these.
    from pyserve.control.discovery import not_found
    from pyserve.driver.session import find_session

    settings = settings_for(controller)
    session = find_session(settings)
    if session is None:
        raise not_found(settings.home, advice)
    return session


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
