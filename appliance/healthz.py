"""The health check of containers: exits with code 0 if the part on this machine reports that it is
healthy.

It is run as a file, `python -I appliance/healthz.py PORT`. `HOST:PORT` or the path of a socket file
can stand instead of a port. It imports as little as possible, because containers run it every few
seconds.
"""

import socket
import sys

TIMEOUT_S = 4.0
ANSWER_BYTES_MAX = 16 * 1024


def connect(place: str) -> socket.socket:
    """Connect to a port of the loopback or of another host, or to a socket file, whose path is
    absolute. Raises OSError."""
    if not place.startswith("/"):
        host, _, port = place.rpartition(":")
        return socket.create_connection((host or "127.0.0.1", int(port)), timeout=TIMEOUT_S)
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(TIMEOUT_S)
    try:
        link.connect(place)
    except OSError:
        link.close()
        raise
    return link


def ask(place: str) -> tuple[bool, str]:
    """Return whether `/healthz` at a port, at `host:port` or at a socket file answers with status
    200, and the text of the answer."""
    answer = b""
    try:
        with connect(place) as connection:
            connection.sendall(
                b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            while len(answer) < ANSWER_BYTES_MAX and (more := connection.recv(4096)):
                answer += more
    except OSError as error:
        return False, str(error)
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    text = body.decode(errors="replace").strip()
    return len(words) > 1 and words[1] == b"200", text or "no answer"


if __name__ == "__main__":
    is_healthy, reason = ask(sys.argv[1])
    sys.stdout.write(reason + "\n")
    sys.exit(0 if is_healthy else 1)
