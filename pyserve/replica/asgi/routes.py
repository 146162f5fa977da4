"""Counts requests by the route of the application that answered them, with durations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyserve.api.class_routes import routes_with_paths
from pyserve.observe.metrics.families import Tally

if TYPE_CHECKING:
    from pyserve.replica.asgi.scope import Application, Scope

ROUTES_MAX = 200
"""The most routes that are counted separately. Arbitrary."""
_OTHERS = "others"


class RouteMeasures:
    """The requests of one application by FastAPI's routes. For one loop.

    Requests that no route takes are not among them.

    Args:
        app: Whose routes they are; only FastAPI applications are counted.

    Attributes:
        times: How long requests took in the application, by verb and template: ``GET /items/{id}``.
        answers: How many of them had which class of status (``2xx``), or none (``left``).
    """

    def __init__(self, app: Application) -> None:
        self.times: dict[str, Tally] = {}
        self.answers: dict[tuple[str, str], int] = {}
        # A route alone does not know the prefix that its router was included with.
        self._paths = {id(route): path for path, route in routes_with_paths(app)}

    @property
    def is_known(self) -> bool:
        """Whether the application has routes with names."""
        return bool(self._paths)

    def add(self, scope: Scope, root_path: str, status: int, duration_s: float) -> None:
        """Count a request that has ended.

        Args:
            scope: Where the application has left its route.
            root_path: That of the scope before the application has had it.
            status: Of the answer; 0: there was none.
            duration_s: How long it took.
        """
        route = scope.get("route")
        if route is None:
            return
        name = f"{scope['method']} {self._path_of(route, scope, root_path)}"
        tally = self.times.get(name)
        if tally is None:
            if len(self.times) >= ROUTES_MAX:
                name = _OTHERS
            tally = self.times.setdefault(name, Tally())
        tally.add(duration_s)
        answer = name, f"{status // 100}xx" if status else "left"
        self.answers[answer] = self.answers.get(answer, 0) + 1

    def _path_of(self, route: Any, scope: Scope, root_path: str) -> str:
        path = self._paths.get(id(route))
        if path is not None:
            return path
        # Of a mounted application, or added later.
        mounted = scope["root_path"].removeprefix(root_path)
        return f"{mounted}{getattr(route, 'path', '')}"
