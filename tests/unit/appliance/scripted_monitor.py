"""An HTTP server in place of the monitor, which gives the scripted answers of a test."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.unit.appliance.test_commands import config


@contextlib.contextmanager
def answering(home: Path, answer: Callable[[str], dict[str, Any]]) -> Iterator[None]:
    """Run a monitor that answers each path with `answer`, and register its address in the mill at
    `home`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer(self.path)).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config(home, f"monitor: {{listen: '127.0.0.1:{server.server_port}'}}")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
