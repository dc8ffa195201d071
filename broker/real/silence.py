"""When the kernel takes the other side of a link for gone.

Floor: real. A dead host acknowledges nothing, while the kernel of a process that stands still does.
So a link that says nothing is asked every second, and one on which nothing was acknowledged for
long enough ends with TIMED_OUT. Both are the kernel's work: it goes on while this process is busy.
"""

from __future__ import annotations

import socket

PING_S = 1
"""Of silence before the other kernel is asked, and between two questions; the least there is."""


def end_when_silent(link: socket.socket, silence_ms_max: int) -> None:
    """End a link, or those accepted by it, when nothing was acknowledged for so long."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms_max)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PING_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PING_S)
