"""Detect with the kernel's help that the other side of a link is gone.

Room: real. A dead host acknowledges nothing, while the kernel of a stopped process still does. So
an idle link is probed every second, and a link without acknowledgements for long enough ends with
TIMED_OUT. The kernel does both, so they work while this process is busy.
"""

from __future__ import annotations

import socket

PING_S = 1
"""Seconds of silence before the first probe and between probes; the kernel's minimum."""


def end_when_silent(link: socket.socket, silence_ms_max: int) -> None:
    """End a link, or those that a listener accepts, after this time without acknowledgement."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms_max)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PING_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PING_S)
