"""The health check of containers: exits with code 0 if the part on this machine reports that it is
healthy.

It is run as a file, `python -I appliance/healthz.py PORT`. It imports as little as possible,
because containers run it every few seconds.
"""

import socket
import sys

TIMEOUT_S = 4.0
ANSWER_BYTES_MAX = 16 * 1024


def ask(port: int) -> tuple[bool, str]:
    """Return whether `/healthz` on a port of the loopback answers with status 200, and the text of
    the answer."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
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
    is_healthy, reason = ask(int(sys.argv[1]))
    sys.stdout.write(reason + "\n")
    sys.exit(0 if is_healthy else 1)
