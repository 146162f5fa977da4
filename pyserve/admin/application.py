"""What the admin server answers. Each group of paths is a module with a function ``routes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette

from pyserve.admin import metrics_routes
from pyserve.admin.access import Doorkeeper

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pyserve.admin.desk import Desk


def make_application(desk: Desk, token: bytes) -> ASGIApp:
    """Return the application of one admin server, for who may look."""
    return Doorkeeper(Starlette(routes=[*metrics_routes.routes(desk)]), token)
