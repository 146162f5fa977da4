"""A mesh whose processes may not make shared memory; run as a program.

Prints how many bytes came back of those that were sent.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

import httpx

import pyserve
from tests.mesh.shared_memory.shared import relay

# linux/audit.h, linux/filter.h, linux/seccomp.h and the tables of system calls.
_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}[platform.machine()]
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def forbid_memfds() -> None:
    """Let ``memfd_create`` fail in this process and those that it starts."""
    instructions = [
        (_LOAD_WORD, 0, 0, 0),  # the number of the system call
        (_JUMP_IF_EQUAL, 0, 1, _MEMFD_CREATE),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *each) for each in instructions)
    program = _Program(len(instructions), code)
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    """Send a body through the mesh."""
    forbid_memfds()
    body = os.urandom(1 << 20)
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(relay, name="relay", route_prefix="/")
        answer = httpx.post(f"http://{pyserve.status().addresses[0]}/", content=body, timeout=60)
        print(len(answer.content) if answer.content == body else "another body")
    finally:
        pyserve.shutdown()


if __name__ == "__main__":
    main()
