"""Who may view: on loopback everybody, from elsewhere clients with the mesh token or a key.

Web pages may send any request to 127.0.0.1, so on loopback the request has to name a loopback host,
which a page of another name cannot do, and must not come from another origin.

The server shows names of applications and methods, and ids of requests and models. If access rules
or certificates keep these from callers, other users of the machine need the token or key too.

The token makes its owner a member of the mesh, so it is not accepted where the network could read
it, and the key is required instead: the refusal says so to a user who sent the token.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

from pyserve.config import is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_PURPOSE = b"pyserve-admin"
_REFUSAL = (
    "the viewing key of this mesh is asked for: Authorization: Bearer KEY, with what `pyserve "
    "viewing-key` prints where the mesh token is\n"
)
_PLAIN_REFUSAL = (
    "the mesh token is not for a network that can read it; show what `pyserve viewing-key` prints "
    "instead, or give the ingress a certificate (PYSERVE_TLS_CERT_FILE)\n"
)


def viewing_key(token: bytes) -> str:
    """Return the key for viewing the admin server, which does not admit to the mesh.

    Commands send it instead of the token, so that a process that has taken the port of an ended
    admin server learns no more than this key.
    """
    return hmac.digest(token, _PURPOSE, "sha256").hex()


class Doorkeeper:
    """Admits clients that may view the admin server.

    Args:
        application: What is behind it.
        token: Of the mesh.
        is_open: Says whether a path is open to everybody.
        is_guarded: The token, or ``viewing_key``, is required on loopback too.
        is_private: Connections from elsewhere are private, so that the token is accepted.
    """

    def __init__(
        self,
        application: ASGIApp,
        token: bytes,
        *,
        is_open: Callable[[str], bool],
        is_guarded: bool,
        is_private: bool,
    ) -> None:
        self._application = application
        self._is_open = is_open
        self._is_guarded = is_guarded
        self._is_private = is_private
        self._token = f"Bearer {token.hex()}".encode()
        self._key = f"Bearer {viewing_key(token)}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"authorization", b"")
        is_token = hmac.compare_digest(given, self._token)
        if (
            hmac.compare_digest(given, self._key)
            or (is_token and (self._is_private or _is_from_here(scope)))
            or self._is_open(scope["path"])
            or (not self._is_guarded and _is_near(scope, headers))
        ):
            await self._application(scope, receive, send)
            return
        # A client that tries again must reconnect, which costs less than a request.
        head = {"www-authenticate": "Bearer", "connection": "close"}
        text = _PLAIN_REFUSAL if is_token else _REFUSAL
        await PlainTextResponse(text, status_code=401, headers=head)(scope, receive, send)


def _is_from_here(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


def _is_near(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    host = headers.get(b"host", b"").decode("latin-1")
    if not _is_from_here(scope) or not is_loopback(_without_port(host)):
        return False
    origin = headers.get(b"origin")
    return origin is None or origin.decode("latin-1").partition("://")[2] == host


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
