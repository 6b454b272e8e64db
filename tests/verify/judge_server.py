"""A chat endpoint on loopback whose replies a test decides. It is real: sockets, threads, HTTP."""

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

MARK = re.compile(r"(VERDICT-[0-9a-f]{8}): <")


@dataclass
class Reply:
    """What goes over the wire."""

    text: str = ""
    """Content of the message, in a valid chat completion."""
    status: int = 200
    raw: bytes | None = None
    """The body as it is, instead of ``text``."""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    """Pause between single bytes of the body."""


Answer = Callable[[str], str | Reply]


class JudgeServer:
    """Replies by ``answer``, which is given the user's message; records what came in.

    ``most_at_once`` is exact: a request counts until the first byte of its reply is sent, so a client that waits for
    replies cannot have its next request counted beside it.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.payloads: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def asked(self) -> list[str]:
        """The user's messages, in the order in which they came."""
        return [payload["messages"][-1]["content"] for payload in self.payloads]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.payloads.append(payload | {"path": self.path})
                    server.headers.append(dict(self.headers))
                    server._now += 1
                    server.most_at_once = max(server.most_at_once, server._now)
                try:
                    reply = server._reply(payload["messages"][-1]["content"])
                finally:
                    with server._lock:
                        server._now -= 1
                server._send(self, reply)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _reply(self, message: str) -> Reply:
        answer = self.answer(message)
        reply = answer if isinstance(answer, Reply) else Reply(answer)
        self._ending.wait(reply.delay_s)
        return reply

    def _send(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        body = reply.raw
        if body is None:
            body = json.dumps({"choices": [{"message": {"role": "assistant", "content": reply.text}}]}).encode()
        try:
            handler.send_response(reply.status)
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            for byte in [body] if not reply.drip_s else [bytes([value]) for value in body]:
                handler.wfile.write(byte)
                if reply.drip_s and self._ending.wait(reply.drip_s):
                    return
        except (BrokenPipeError, ConnectionResetError):
            return


def mark_in(message: str) -> str:
    """The mark that the judge was told to put in front of its verdict."""
    return MARK.findall(message)[-1]


def fenced_in(message: str) -> list[str]:
    """The texts behind the fence."""
    return re.findall(r"=== ([0-9a-f]{32}) ===\n(.*?)\n=== \1 ===", message, re.DOTALL)


def grade(verdict: str | float) -> Answer:
    """A judge that always says the same, as it was told to."""
    return lambda message: f"Some thoughts.\n{mark_in(message)}: {verdict}"


def in_company(num_requests: int, answer: Answer) -> Answer:
    """The same judge, who replies only when that many requests are there, and a little later in case of one more."""
    company = threading.Barrier(num_requests)

    def slow(message: str) -> str | Reply:
        company.wait(60)
        time.sleep(0.05)
        return answer(message)

    return slow
