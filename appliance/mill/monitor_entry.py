"""The way in which the mill's own commands reach the monitor."""

import http.client
import socket
from pathlib import Path

from appliance.mill.home import Home
from protocol.control import short_path


class SocketFileConnection(http.client.HTTPConnection):
    """An HTTP connection over a socket file."""

    def __init__(self, path: str, timeout_s: float) -> None:
        # The monitor expects this name in the header Host.
        super().__init__("localhost", timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        """Connect to the file. Raises OSError."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(self.timeout)
        try:
            with short_path(Path(self.path)) as name:
                link.connect(name)
        except OSError:
            link.close()
            raise
        self.sock = link


def monitor_connection(home: Home, address: str, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection to the monitor at an address `host:port`.

    If the page needs a login, the monitor has a socket file for the mill's own account, and the
    connection uses it.
    """
    if home.monitor_socket.exists():
        return SocketFileConnection(str(home.monitor_socket), timeout_s)
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
