"""A program that reports to its supervisor as its first argument says, and then does as the rest.

Its options: ``--report-fd=N LINE... [--deaf | --slow | --end=STATUS]``.
"""

import os
import signal
import sys


def main() -> int:
    """Write lines, then wait for SIGTERM."""
    option, *rest = sys.argv[1:]
    report = int(option.partition("=")[2])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for line in (each for each in rest if not each.startswith("--")):
        os.write(report, f"{line}\n".encode())
    for each in rest:
        if each.startswith("--end="):
            return int(each.partition("=")[2])
    while "--deaf" in rest:
        signal.sigwait({signal.SIGTERM})
    signal.sigwait({signal.SIGTERM})
    if "--slow" not in rest:
        return 0
    # The second signal means at once, as in the processes of a mesh.
    signal.sigwait({signal.SIGTERM})
    return 1


if __name__ == "__main__":
    sys.exit(main())
