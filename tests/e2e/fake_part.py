"""A part for tests of the supervisor. It responds to /healthz, and misbehaves as its modes say.

`python -m tests.e2e.fake_part PORT [MODE…]` starts it. These are the modes:

- `deaf`: ignore SIGTERM.
- `exit=N`: exit at once with this code.
- `orphan`: outlive the supervisor.
- `child=FILE`: start another process and write its id into the file.
- `unready`: respond with 503.

Each start and each stop adds a line to the log.
"""

import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from appliance.machine.processes import PARENT_VARIABLE, die_with_parent


def main(port: int, modes: list[str]) -> int:
    """Serve until SIGTERM comes."""
    print(f"begun {port}", flush=True)
    for mode in modes:
        name, _, value = mode.partition("=")
        if name == "exit":
            return int(value)
        if name == "child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(value).write_text(str(child.pid))
    parent = os.environ.get(PARENT_VARIABLE)
    if "orphan" not in modes and parent:
        die_with_parent(int(parent))
    action = signal.SIG_IGN if "deaf" in modes else lambda *_: sys.exit(0)
    signal.signal(signal.SIGTERM, action)
    code = 503 if "unready" in modes else 200

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(b"waits for something\n" if code == 503 else b"ok\n")

        def log_message(self, *_: object) -> None:
            pass

    try:
        HTTPServer(("127.0.0.1", port), Handler).serve_forever()
    finally:
        print(f"ended {port}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
