"""Tells a service manager such as systemd how the mill is, by its datagram socket (sd_notify)."""

import contextlib
import socket
from collections.abc import Callable, MutableMapping

NOTIFY_VARIABLE = "NOTIFY_SOCKET"


def service_manager(environ: MutableMapping[str, str]) -> Callable[[str], None]:
    """What tells it a state such as `READY=1`; does nothing where there is none.

    The variable is taken out of `environ`: a part that knows it too would speak for the mill.
    """
    address = environ.pop(NOTIFY_VARIABLE, "")

    def tell(state: str) -> None:
        if not address:
            return
        # A name that begins so is none of a file, but of the kernel's own space of names.
        name = f"\0{address[1:]}" if address.startswith("@") else address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link, contextlib.suppress(OSError):
            link.sendto(state.encode(), name)

    return tell
