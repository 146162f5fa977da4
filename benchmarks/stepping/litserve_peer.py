"""The same model behind LitServe's loop for continuous batching; runs in LitServe's environment.

The ``DefaultContinuousBatchingLoop`` of this version raises at its first request, since its
``add_request`` lacks a parameter; so this makes its steps itself, which the loop allows.
"""

import argparse
import threading
import time

import litserve as ls
from litserve.loops.continuous_batching_loop import ContinuousBatchingLoop, Output
from litserve.utils import LitAPIStatus

from benchmarks.stepping.model import RUNNING, step_s


class Steps(ls.LitAPI):
    """A request is the number of its steps; each step streams a value to each request."""

    def setup(self, device: str) -> None:  # noqa: ARG002
        self.left: dict[str, int] = {}
        self.lock = threading.Lock()  # Requests are added while a step runs on another thread.

    def decode_request(self, request: dict[str, int]) -> int:
        return request["steps"]

    def add_request(self, uid: str, request: dict[str, int]) -> None:
        with self.lock:
            self.left[uid] = self.decode_request(request)

    def has_capacity(self) -> bool:
        return len(self.left) < RUNNING

    def has_active_requests(self) -> bool:
        return bool(self.left)

    def step(self, _outputs: list[Output] | None) -> list[Output]:
        with self.lock:
            running = list(self.left)
        time.sleep(step_s(len(running)))
        results = []
        for uid in running:
            self.left[uid] -= 1
            results.append(Output(uid, self.left[uid], LitAPIStatus.OK))
            if not self.left[uid]:
                with self.lock:
                    del self.left[uid]
                results.append(Output(uid, "", LitAPIStatus.FINISH_STREAMING))
        return results

    def encode_response(self, output: int) -> str:
        return f"data: {output}\n\n"


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    api = Steps(loop=ContinuousBatchingLoop(), stream=True, max_batch_size=RUNNING)
    server = ls.LitServer(api, accelerator="cpu", timeout=False, track_requests=False)
    server.run(host="127.0.0.1", port=options.port, generate_client_file=False)


if __name__ == "__main__":
    main()
