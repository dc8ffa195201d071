"""A reverse proxy in front of the page. It serves the page below a path prefix."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TIMEOUT_S = 30.0
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}


@contextmanager
def proxy(port: int, prefix: str) -> Iterator[str]:
    """Yield the address of a proxy that forwards everything below `prefix` to a port, without the
    prefix, under another host name.

    Other paths get 404, so a test notices a link without the prefix.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, format: str, *args: object) -> None:
            return

        def do_GET(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            upstream = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in {*HOP_BY_HOP, "host"}}  # fmt: skip
            headers["Host"] = f"127.0.0.1:{port}"
            headers["X-Forwarded-Host"] = self.headers["Host"]
            try:
                upstream.request(
                    self.command, self.path.removeprefix(prefix), self.rfile.read(length), headers
                )
                answer = upstream.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {*HOP_BY_HOP, "server", "date"}:
                        self.send_header(name, value)
                self.end_headers()
                # The page's event stream never ends, so forward each event when it arrives.
                while piece := answer.read1(65_536):
                    self.wfile.write(piece)
            except (OSError, HTTPException):
                self.close_connection = True
            finally:
                upstream.close()

        do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    finally:
        server.shutdown()
        server.server_close()
