"""``python -m pyserve.ingress``: an ingress as a process of its own."""

import sys

from pyserve.ingress.process import main

if __name__ == "__main__":
    sys.exit(main())
