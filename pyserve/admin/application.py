"""What the admin server answers. Each group of paths is a module with a function ``routes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette

from pyserve.admin import api_routes, metrics_routes, page_routes
from pyserve.admin.access import Doorkeeper

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pyserve.admin.desk import Desk


def make_application(desk: Desk, token: bytes) -> ASGIApp:
    """Return the application of one admin server, for who may look."""
    routes = [*metrics_routes.routes(desk), *api_routes.routes(desk)]
    if desk.front is not None:
        routes += page_routes.routes()
    return Doorkeeper(Starlette(routes=routes), token, is_open=page_routes.is_of_page)
