"""What stands behind the guarded ingress, and between guarded processes."""

import hashlib

import pyserve
from services.echo.service import Echo

app = Echo.bind()


@pyserve.deployment
class Digest:
    """Says what it got, without sending it back."""

    def __call__(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def make(self, size_bytes: int) -> bytes:
        return b"x" * size_bytes


digest = Digest.bind()
