"""What the launcher's tests start in a replica's place; its behaviour is in the environment."""

import argparse
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from pyserve.replica.spare import replica_arguments


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("controller", "replica-id", "application", "deployment"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--token-fd", type=int)
    parser.add_argument("--liveness-fd", type=int)
    parser.add_argument("--lasting")
    arguments = replica_arguments(sys.argv[1:])
    if arguments is None:
        return 0
    options = parser.parse_args(arguments)
    with os.fdopen(options.token_fd, "rb") as file:
        token = file.read()
    match os.environ.get("SUBJECT"):
        case "tell":
            told = {
                "token": token.decode(),
                "argv": sys.argv,
                "arguments": arguments,
                "pid": os.getpid(),
                "environment": dict(os.environ),
                "directory": str(Path.cwd()),
                "group": os.getpgrp() == os.getpid(),
                "session": os.getsid(0) == os.getpid(),
                "replica": options.replica_id,
                "processors": sorted(os.sched_getaffinity(0)),
            }
            print(json.dumps(told))
        case "speak":
            print("out")
            print("err", file=sys.stderr)
            sys.stdout.write("x" * 20_000 + "\n")
            return 3
        case "die":
            os.kill(os.getpid(), 9)
        case "wait":
            print("waits", flush=True)
            os.read(options.liveness_fd, 1)
            print("the launcher is gone", flush=True)
        case "echo":
            # Says what it is told, which may come from anybody, until it is told to end.
            place = Path(os.environ["SUBJECT_PLACE"])
            with suppress(FileExistsError):
                os.mkfifo(place)
            print("waits", flush=True)
            while (text := place.read_text()) != "end":
                print(text, flush=True)
            return 4
        case "drain":
            # Ends in order when it is told to, and says so.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            print("waits", flush=True)
            signal.sigwait({signal.SIGTERM})
            Path(os.environ["SUBJECT_PLACE"]).write_text("drained")
        case "deaf":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            print("waits", flush=True)
            signal.pause()
        case "spawn":
            # A grandchild that ignores the liveness pipe and holds standard output.
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            print(child.pid, flush=True)
            if options.lasting is None:
                os.read(options.liveness_fd, 1)
            else:
                child.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
