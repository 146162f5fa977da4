"""Stands for ``vllm``: a server with the endpoints that its manual names, and no model.

Notes in a file what it was started with and what was posted.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def note(line: str) -> None:
    with open(os.environ["NOTES"], "a") as notes:  # noqa: PTH123
        notes.write(f"{line}\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(b"")
        else:
            self.answer({"data": [{"id": "qwen", "max_model_len": 4096}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "null")
        if self.path == "/v1/chat/completions":
            choice = {"index": 0, "delta": {"content": body["model"]}, "finish_reason": "stop"}
            self.answer(f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n".encode())
            return
        note(f"POST {self.path} {json.dumps(body)}")
        is_wrong = isinstance(body, dict) and "broken" in str(body.get("lora_name"))
        self.answer(b"no such adapter" if is_wrong else {}, 400 if is_wrong else 200)

    def answer(self, body: object, status: int = 200) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_arguments: object) -> None:
        pass


if __name__ == "__main__":
    arguments = sys.argv[1:]
    opened = {"VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"} & os.environ.keys()
    note(f"{len(opened)} {arguments[0]} {arguments[1]}")
    port = int(arguments[arguments.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
