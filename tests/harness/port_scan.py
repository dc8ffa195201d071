"""A connect scan: the TCP ports of an address that accept a connection."""

import errno
import select
import socket
from collections.abc import Iterable, Iterator

ALL_PORTS = range(1, 65_536)
AT_ONCE = 400
SILENT_S = 10.0


class SilentPorts(AssertionError):
    """Ports that neither accepted nor refused a connection, so the scan does not know them."""


def open_ports(host: str, ports: Iterable[int] = ALL_PORTS) -> list[int]:
    """Return the ports that accept a connection. Raises SilentPorts."""
    waiting = iter(ports)
    asked: dict[int, tuple[socket.socket, int]] = {}
    found: list[int] = []
    poll = select.epoll()
    try:
        while _ask(host, waiting, asked, poll, found):
            events = poll.poll(SILENT_S)
            if not events:
                raise SilentPorts(f"{host}: {sorted(port for _, port in asked.values())[:20]}")
            for fd, _ in events:
                one, port = asked.pop(fd)
                if _is_open(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                    found.append(port)
                one.close()
    finally:
        poll.close()
        for one, _ in asked.values():
            one.close()
    return sorted(found)


def _ask(
    host: str,
    waiting: Iterator[int],
    asked: dict[int, tuple[socket.socket, int]],
    poll: select.epoll,
    found: list[int],
) -> bool:
    """Begin connections up to `AT_ONCE`. Return False if there is none left to wait for."""
    while len(asked) < AT_ONCE and (port := next(waiting, None)) is not None:
        one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        one.setblocking(False)
        code = one.connect_ex((host, port))
        if code == errno.EINPROGRESS:
            asked[one.fileno()] = one, port
            poll.register(one, select.EPOLLOUT)
            continue
        if _is_open(code):
            found.append(port)
        one.close()
    return bool(asked)


def _is_open(code: int) -> bool:
    """Return whether a connection was accepted, from its error number. Raises OSError if it was
    neither accepted nor refused."""
    if code not in (0, errno.ECONNREFUSED):
        raise OSError(code, errno.errorcode[code])
    return code == 0
