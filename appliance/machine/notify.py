"""Tell a service manager such as systemd the state of the mill, by its datagram socket
(sd_notify)."""

import contextlib
import socket
from collections.abc import Callable, MutableMapping

NOTIFY_VARIABLE = "NOTIFY_SOCKET"


def service_manager(environ: MutableMapping[str, str]) -> Callable[[str], None]:
    """Return a function that sends a state such as `READY=1` to the service manager. Without a
    manager the function does nothing.

    The variable with the socket's address is removed from `environ`, because otherwise the parts
    could send states too.
    """
    address = environ.pop(NOTIFY_VARIABLE, "")

    def tell(state: str) -> None:
        if not address:
            return
        # A name with this prefix is in the kernel's abstract namespace, not in a file system.
        name = f"\0{address[1:]}" if address.startswith("@") else address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link, contextlib.suppress(OSError):
            link.sendto(state.encode(), name)

    return tell
