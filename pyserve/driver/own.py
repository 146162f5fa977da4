"""``python -m pyserve.driver.own``: has the ingress of a program's mesh, and keeps its controller.

``pyserve.run`` and ``pyserve run`` start it. It begins with the controller, whose imports take as
long as its own: so neither waits for the other.
"""

import sys

from pyserve.garbage import end_uncollected, importing

end_uncollected()
with importing():
    from pyserve.driver.own_mesh import Controllers


def main() -> int:
    """Run the mesh until it ends; return 0 after an end in order."""
    controllers = Controllers(sys.argv[1:])
    first = controllers.start()
    from pyserve.driver.own_mesh import run

    return run(sys.argv[1:], controllers, first)


if __name__ == "__main__":
    sys.exit(main())
