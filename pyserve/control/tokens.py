"""Reads the mesh token from a file. Proof of the token makes a process a member of the mesh."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pyserve.errors import MeshError

TOKEN_BYTES = 32
# The least for tokens that people choose: shorter ones could be guessed.
TOKEN_BYTES_MIN = 16
_WHAT_ONE_IS = "one is hexadecimal digits, in the file that a controller has written"


def read_token(path: Path, variable: str = "") -> bytes:
    """Read a mesh token from a file that only its owner may read, or root and one group.

    Args:
        path: where it is.
        variable: the environment's, which names it; "": none does.

    Raises:
        MeshError: the file is missing, not private, or empty, or holds something else, or too
            little.
    """
    named = f"{path} ({variable})" if variable else str(path)
    try:
        with path.open() as file:
            found = os.fstat(file.fileno())
            token = bytes.fromhex(file.read().strip())
    except OSError as error:
        raise MeshError(
            f"the mesh token cannot be read from {named}: {error.strerror}; give the path of the "
            f"file with the token of that mesh, which this user may read"
        ) from error
    except ValueError:
        raise MeshError(f"{named} holds something else than a mesh token: {_WHAT_ONE_IS}") from None
    # Kubernetes mounts a Secret as root's, and readable for the group of the pod.
    others = 0o037 if found.st_uid == 0 else 0o077
    if stat.S_IMODE(found.st_mode) & others:
        raise MeshError(f"{named} holds a mesh token but others may read it; chmod 600 {path}")
    if not token:
        raise MeshError(f"{named} holds no mesh token: {_WHAT_ONE_IS}")
    if len(token) < TOKEN_BYTES_MIN:
        raise MeshError(
            f"{named} holds a mesh token of {len(token)} bytes, which can be guessed; give it "
            f"{TOKEN_BYTES_MIN} at least: openssl rand -hex {TOKEN_BYTES}"
        )
    return token
