"""Brokers in separate network namespaces, between which packets can be lost.

    with Namespaces((1, 2, 3)) as spaces:
            spaces.host_of(1)      # the address at which all others reach broker 1
        spaces.cut(1, 2)       # no packet of 1 reaches 2 any more, and 1 gets no error
        spaces.heal()

With `links` a process holds bytes back, but the kernel still acknowledges them. Here no packet is
answered, as with a pulled cable, so TCP itself must give up. The process that creates the
namespaces must run in a new namespace (`unshare --net`), which routes between the others. So the
machine's own network does not change, and all namespaces disappear with the process. `own_network`
does the same for the thread of a test.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from tests.harness.processes import Server
from tests.harness.wait import wait_until

CLONE_NEWNET = 0x40000000
LOOPBACK_HOST = "127.0.0.1"
DEADLINE_S = 10.0

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


class Within(Protocol):
    """The hosts of the brokers: each broker's address, and the command prefix to run a program
    there."""

    def host_of(self, node_id: int) -> str:
        """Return the address of a broker."""

    def command(self, node_id: int) -> Sequence[str]:
        """Return the command prefix that runs a program in the broker's namespace."""


class Loopback:
    """All brokers on this machine's own loopback."""

    def host_of(self, node_id: int) -> str:
        return LOOPBACK_HOST

    def command(self, node_id: int) -> Sequence[str]:
        return ()


def can_be_made() -> bool:
    """Return True if this process may create a network namespace."""
    return os.geteuid() == 0 and not subprocess.run(["unshare", "--net", "true"]).returncode


def ip(*arguments: str) -> None:
    """Run one `ip` command in the namespace of this process."""
    subprocess.run(["ip", *arguments], check=True, timeout=DEADLINE_S)


@contextmanager
def own_network() -> Iterator[None]:
    """Move this thread into a new network namespace, and back at the end.

    Sockets, threads and processes that the thread makes in it stay in the namespace. Call it in the
    main thread, because `/proc/self` shows the namespaces of that thread.
    """
    with _returning():
        _check(_libc().unshare(CLONE_NEWNET))
        yield


@contextmanager
def _returning() -> Iterator[None]:
    """Return to the current network namespace at the end."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _check(_libc().setns(own, CLONE_NEWNET))
        os.close(own)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(returned: int) -> None:
    if returned:
        raise OSError(ctypes.get_errno(), "no other network namespace")


class Namespaces(Server):
    """One namespace for each broker, and the routes between them."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        self._node_ids = tuple(node_ids)
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        """Idle processes, each of which keeps a namespace alive."""
        self._cut: list[tuple[int, int]] = []

    def host_of(self, node_id: int) -> str:
        return f"10.77.{node_id}.2"

    def router_of(self, node_id: int) -> str:
        """Return the address at which a namespace reaches the namespace of its maker."""
        return f"10.77.{node_id}.1"

    def command(self, node_id: int) -> Sequence[str]:
        return ("nsenter", f"--net=/proc/{self._holders[node_id].pid}/ns/net")

    @contextmanager
    def inside(self, node_id: int) -> Iterator[None]:
        """Let this thread make its sockets, threads and processes in another namespace."""
        theirs = os.open(f"/proc/{self._holders[node_id].pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with _returning():
            _check(_libc().setns(theirs, CLONE_NEWNET))
            os.close(theirs)
            yield

    # Faults, with the same methods as `links`.

    def cut(self, source: int, target: int) -> None:
        """Drop every packet from `source` to `target` from now on."""
        self._rule("add", source, target)
        self._cut.append((source, target))

    def isolate(self, node_id: int) -> None:
        """Cut a broker off from all others in both directions."""
        for other in self._node_ids:
            if other != node_id:
                self.cut(node_id, other)
                self.cut(other, node_id)

    @contextmanager
    def unplugged(self, node_id: int) -> Iterator[None]:
        """Pull the cable of a namespace, without an error at either end."""
        ip("link", "set", f"out{node_id}", "down")
        try:
            yield
        finally:
            ip("link", "set", f"out{node_id}", "up")

    def heal(self) -> None:
        """Let everything pass again. TCP retransmits the lost packets unless it has already given
        up the connection."""
        while self._cut:
            self._rule("del", *self._cut.pop())

    def delay(self, source: int, target: int, delay_s: float) -> None:
        """Raise, because a namespace can lose packets but not delay them."""
        raise NotImplementedError

    def reset(self, one: int, other: int) -> None:
        """Close nothing, because a pulled cable closes no connection."""

    def shut(self, node_id: int) -> None:
        """Do nothing, because the kernel refuses a connection to a port without a listener."""

    def serve(self, node_id: int) -> None:
        """Do nothing, because a broker that listens again needs no preparation."""

    def _rule(self, verb: str, source: int, target: int) -> None:
        hosts = ("from", self.host_of(source), "to", self.host_of(target))
        ip("rule", verb, *hosts, "blackhole")

    # Start and stop.

    def start(self) -> Self:
        ip("link", "set", "lo", "up")
        FORWARDING.write_text("1")
        for node_id in self._node_ids:
            self._make(node_id)
        return self

    def _make(self, node_id: int) -> None:
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[node_id] = holder
        own = Path("/proc/self/ns/net").readlink()
        theirs = Path(f"/proc/{holder.pid}/ns/net")
        wait_until(lambda: theirs.readlink() != own, DEADLINE_S, "another namespace")
        outside, inside, router = f"out{node_id}", f"in{node_id}", self.router_of(node_id)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside)
        ip("link", "set", inside, "netns", str(holder.pid))
        ip("address", "add", f"{router}/30", "dev", outside)
        ip("link", "set", outside, "up")
        for arguments in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{self.host_of(node_id)}/30", "dev", inside),
            ("link", "set", inside, "up"),
            ("route", "add", "default", "via", router),
        ):
            command = (*self.command(node_id), "ip", *arguments)
            subprocess.run(command, check=True, timeout=DEADLINE_S)

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
