"""Lets the kernel detect that the other side of a connection is gone.

A dead host acknowledges nothing, but the kernel of a host with a stopped process still acknowledges
packets. So this host's kernel probes an idle connection every second. If a connection gets no
acknowledgement for too long, the kernel ends it with TIMED_OUT. The kernel does this even while
this process is busy.
"""

from __future__ import annotations

import socket

PING_S = 1
"""The seconds of silence before the first probe and between probes. This is the kernel's
minimum."""


def end_when_silent(link: socket.socket, silence_ms_max: int) -> None:
    """Let the kernel end a connection after this many milliseconds without acknowledgement.

    For a listening socket this applies to the connections that it accepts.
    """
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms_max)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PING_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PING_S)
