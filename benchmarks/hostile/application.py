"""What is attacked: a plain HTTP handler; the echo service runs beside it."""

from __future__ import annotations

from starlette.requests import Request

import pyserve


@pyserve.deployment
class Plain:
    """Answers with as many bytes as the query asks for, or with how many came."""

    def __init__(self) -> None:
        self._requests: list[str] = []

    async def __call__(self, request: Request) -> bytes:
        """Take the whole body and answer."""
        if request.url.path == "/plain/requests":
            return "\n".join(self._requests).encode()
        body = await request.body()
        # Not before: what breaks off in the middle is no request.
        if "note" in request.query_params:
            self._requests.append(f"{request.method} {request.url.query}")
        if wanted := request.query_params.get("bytes"):
            return bytes(int(wanted))
        return str(len(body)).encode()


plain_app = Plain.bind()  # type: ignore[attr-defined]  # what decorators return
