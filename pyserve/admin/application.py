"""The admin server's application. Each group of paths is a module with a function ``routes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette

from pyserve.admin import api_routes, metrics_routes, page_routes
from pyserve.admin.access import Doorkeeper

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pyserve.admin.context import AdminContext


def make_application(
    admin_context: AdminContext, token: bytes, *, is_guarded: bool, is_private: bool
) -> ASGIApp:
    """Return the application of one admin server, guarded by a ``Doorkeeper``."""
    routes = [*metrics_routes.routes(admin_context), *api_routes.routes(admin_context)]
    if admin_context.front is not None:
        routes += page_routes.routes()
    application = Starlette(routes=routes)
    return Doorkeeper(
        application,
        token,
        is_open=page_routes.is_of_page,
        is_guarded=is_guarded,
        is_private=is_private,
    )
