"""llama.cpp's own server at a port of its own: prints its URL, and ends with its standard input."""

from __future__ import annotations

import sys

from pyserve.config.engines import let_threads_sleep
from pyserve.llm import LlamaCpp
from tests.contract.llm.own_doors import MODEL, SETTINGS


def main() -> None:
    """Serve the model as ``LlamaCpp`` has it, by the doors that the engine has itself."""
    let_threads_sleep()
    import xllamacpp

    engine = LlamaCpp(**SETTINGS)
    params = engine._params(xllamacpp, engine._model_path(), "127.0.0.1")
    params.model_alias = {MODEL} if isinstance(params.model_alias, set) else MODEL
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
