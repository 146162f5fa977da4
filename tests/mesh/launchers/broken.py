"""Launchers that a mesh cannot have."""

from pyserve.errors import MeshError
from pyserve.launch import Site
from tests.support.launching import ScriptedLauncher


class Half:
    """Lacks most of what a launcher has."""

    name = "half"

    def __init__(self, _site: Site) -> None: ...


class Unreachable(ScriptedLauncher):
    """Stands before an engine that is not there."""

    name = "unreachable"

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._where = site.options.get("at")

    async def open(self) -> None:
        raise MeshError(f"no engine answers at {self._where}; start one there")


def raising(_site: Site) -> None:
    raise ValueError("one option is wrong")
