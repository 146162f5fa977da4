"""The command line: ``pyserve run``, ``status``, ``call``, ``shutdown``, ``proto``."""

from pyserve.cli.main import main

__all__ = ["main"]
