"""``python -m pyserve``: the command line, also where the script is not installed."""

from pyserve.cli import main

main()
