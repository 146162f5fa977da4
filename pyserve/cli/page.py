"""Where people find the page of a mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyserve.config import is_loopback

if TYPE_CHECKING:
    from pyserve.wire.v1 import control_pb2


def page_url(ingress: control_pb2.IngressStatus) -> str:
    """Return where the page of an ingress's admin server is."""
    return f"{'https' if speaks_tls(ingress) else 'http'}://{ingress.admin}"


def speaks_tls(ingress: control_pb2.IngressStatus) -> bool:
    """Say whether its admin server does: where the ingress does, but on the loopback."""
    return ingress.speaks_tls and not is_loopback(ingress.admin.rpartition(":")[0])
