"""Where people find the page of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from pyserve.config import is_loopback, read_settings

if TYPE_CHECKING:
    from pyserve.driver.session import Session


class ShownIngress(Protocol):
    """The facts about an ingress that are shown, from a message or read from the ingress itself."""

    @property
    def admin(self) -> str: ...
    @property
    def speaks_tls(self) -> bool: ...


def page_url(ingress: ShownIngress) -> str:
    """Return where the page of an ingress's admin server is."""
    return admin_url(ingress.admin, is_secured=ingress.speaks_tls)


def speaks_tls(ingress: ShownIngress) -> bool:
    """Say whether its admin server does: where the ingress does, but on the loopback."""
    return _has_tls(ingress.admin, is_secured=ingress.speaks_tls)


def admin_url(address: str, *, is_secured: bool) -> str:
    """Return how an admin server is reached.

    Args:
        address: ``host:port``.
        is_secured: The ports of its mesh speak TLS, but on the loopback.
    """
    return f"{'https' if _has_tls(address, is_secured=is_secured) else 'http'}://{address}"


def _has_tls(address: str, *, is_secured: bool) -> bool:
    return is_secured and not is_loopback(address.rpartition(":")[0])


def page_to_try(session: Session) -> Iterator[str]:
    """Yield where methods can be called from a form, unless others have started the mesh."""
    if session.process is None or read_settings().metrics.tries is False:
        return
    # That of the ingress that this run has started.
    shown = [each for each in session.client.status().ingresses if each.admin and each.addresses]
    if shown:
        yield f"pyserve: try it in a browser at {page_url(shown[0])}/#/try"
