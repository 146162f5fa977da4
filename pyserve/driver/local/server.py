"""An ingress in front of one application of this process, as a mesh has it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pyserve.gateway import IngressSecurity, IngressServer
from pyserve.types import MeshAddress

if TYPE_CHECKING:
    from pyserve.config.ingress import IngressSettings
    from pyserve.driver.local.mesh import LocalApplication, LocalMesh


class LocalServer:
    """An ingress that runs. Made by ``start``, on the loop of the application.

    Attributes:
        addresses: Where it listens.
    """

    def __init__(self, application: LocalApplication, ingress: IngressServer, folder: Path) -> None:
        self.addresses = ingress.addresses
        self._application = application
        self._ingress = ingress
        self._folder = folder

    @classmethod
    async def start(
        cls,
        mesh: LocalMesh,
        application: LocalApplication,
        addresses: Sequence[str],
        *,
        security: IngressSecurity | None = None,
        settings: IngressSettings | None = None,
    ) -> Self:
        """Answer the services and the plain HTTP of an application.

        Args:
            mesh: Where it runs.
            application: It has no route prefix: its paths are those of clients.
            addresses: ``host:port`` each; port 0 picks one.
            security: Certificates and access rules; ``None``: there are none.
            settings: Limits and times; ``None``: those of the environment.

        Raises:
            MeshError: An address cannot be used.
        """
        place = mesh.place
        folder = Path(tempfile.mkdtemp(prefix="ingress-", dir=place.folder))
        ingress = IngressServer(
            addresses,
            controller=MeshAddress(controller="", token=place.token),
            node=place.settings.node,
            run_dir=folder,
            security=security,
            settings=settings or place.settings.ingress,
            defaults=place.settings.routing,
            watch=mesh.views.watch_of(application.name),
        )
        try:
            await ingress.start()
        except BaseException:
            await ingress.stop()
            raise
        return cls(application, ingress, folder)

    @property
    def takes_http(self) -> bool:
        """Whether plain HTTP is answered."""
        views = [each.view for each in self._application.replicas.values()]
        return any(view.http_prefixes or view.llm_prefix for view in views)

    async def stop(self, grace_s: float) -> None:
        """Take nothing more, and let what is in flight end within ``grace_s``."""
        for replica in self._application.replicas.values():
            replica.close_web_sockets()
        await self._ingress.drain(grace_s)
        await self._ingress.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
