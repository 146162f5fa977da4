"""@grpc/grpc-js in Node.js, by way of node/client.mjs."""

import asyncio
import json
import shutil
from pathlib import Path

from tests.contract.foreign.calls import Call, Outcome

_FOLDER = Path(__file__).parent / "node"
_PROTO_ROOT = Path(__file__).parents[3]


class NodeClient:
    """One Node.js process for each call."""

    name = "grpc-js"
    compresses = True

    async def perform(self, address: str, call: Call) -> Outcome:
        """See ``Client``."""
        process = await asyncio.create_subprocess_exec(
            *("node", "client.mjs", address, str(_PROTO_ROOT)),
            cwd=_FOLDER,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(call.timeout_s + 20):
                output, errors = await process.communicate(json.dumps(call.to_json()).encode())
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert process.returncode == 0, errors.decode()
        return Outcome.from_json(json.loads(output))


def why_not() -> str | None:
    """Say why the client cannot run here; None if it can."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not (_FOLDER / "node_modules" / "@grpc" / "grpc-js").is_dir():
        return f"@grpc/grpc-js is not installed: npm ci --prefix {_FOLDER.relative_to(_PROTO_ROOT)}"
    return None
