"""Where people find the page of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyserve.config import is_loopback, read_settings

if TYPE_CHECKING:
    from pyserve.driver.session import Session
    from pyserve.wire.v1 import control_pb2


def page_url(ingress: control_pb2.IngressStatus) -> str:
    """Return where the page of an ingress's admin server is."""
    return f"{'https' if speaks_tls(ingress) else 'http'}://{ingress.admin}"


def speaks_tls(ingress: control_pb2.IngressStatus) -> bool:
    """Say whether its admin server does: where the ingress does, but on the loopback."""
    return ingress.speaks_tls and not is_loopback(ingress.admin.rpartition(":")[0])


def page_to_try(session: Session) -> Iterator[str]:
    """Yield where methods can be called from a form, unless others have started the mesh."""
    if session.process is None or read_settings().metrics.tries is False:
        return
    # That of the ingress that this run has started.
    shown = [each for each in session.client.status().ingresses if each.admin and each.addresses]
    if shown:
        yield f"pyserve: try it in a browser at {page_url(shown[0])}/#/try"
