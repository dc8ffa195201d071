"""A test's webhook: it stores the posted requests and answers as the test sets."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hook:
    """A webhook that responds with these status codes in turn, and then repeats the last one."""

    url: str = ""
    statuses: list[int] = field(default_factory=lambda: [204])
    text: str = ""
    location: str | None = None
    posts: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    silent: threading.Event | None = None
    """If this is given, no response comes before it is set."""


@contextmanager
def hook(**keys: Any) -> Iterator[Hook]:
    """Run a webhook on a separate port until the block ends."""
    made = Hook(**keys)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.paths.append(self.path)
            made.tokens.append(self.headers["Authorization"])
            made.posts.append(json.loads(body))
            if made.silent is not None:
                made.silent.wait()
                return
            status = made.statuses.pop(0) if len(made.statuses) > 1 else made.statuses[0]
            self.send_response(status)
            if made.location is not None:
                self.send_header("Location", made.location)
            self.end_headers()
            self.wfile.write(made.text.encode())

        def do_GET(self) -> None:
            made.paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}/hook/s3cret"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        if made.silent is not None:
            made.silent.set()
        server.shutdown()
        server.server_close()
        thread.join()
