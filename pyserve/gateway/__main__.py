"""``python -m pyserve.gateway``: an ingress as a process of its own."""

import sys

from pyserve.garbage import end_uncollected, importing

end_uncollected()
with importing():
    from pyserve.gateway.process import main

if __name__ == "__main__":
    sys.exit(main())
