"""``python -m pyserve.replica``: the entry of launchers."""

import sys

from pyserve.replica.process import main

sys.exit(main())
