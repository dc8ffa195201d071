"""Identifies processes although process ids are reused, and finds the process that uses a port.

After a crash or a reboot, the same process id can belong to another process. So a record has the
process id, the start time of the process in kernel ticks, and the id of the boot. Together they
identify a process.
"""

import ctypes
import errno
import ipaddress
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from appliance.machine.files import write_atomically

PARENT_VARIABLE = "MILLRACE_SUPERVISOR"
"""The variable with the supervisor's process id.

A part with this variable in its environment ends when its supervisor dies.
"""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """The identity of one process."""

    pid: int
    start_ticks: int
    boot_id: str

    def is_alive(self) -> bool:
        """Return whether this process still runs. A zombie process does not."""
        return self.boot_id == boot_id() and _start_ticks(self.pid) == self.start_ticks

    def signal(self, number: signal.Signals, *, group: bool = False) -> bool:
        """Send a signal to the process, if the process with this id is still the recorded one.

        With `group`, its whole process group gets the signal.
        """
        if not self.is_alive():
            return False
        try:
            if group and os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def write(self, path: Path) -> None:
        """Write the identity of the process to a file."""
        write_atomically(path, json.dumps(asdict(self)).encode() + b"\n")


@contextmanager
def with_all_it_starts(
    command: Sequence[str], **options: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process in a process group of its own, and kill the whole group unless the process has
    ended without an error.

    Use this for every command that starts a JVM and waits for its result. Because of the group, a
    terminal's Ctrl-C reaches only the command, which then kills the group. Otherwise a JVM whose
    Python process is interrupted during its start would run forever.
    """
    process = subprocess.Popen(command, process_group=0, **options)
    try:
        yield process
    finally:
        if process.poll() != 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_ticks(pid: int) -> int | None:
    """Return when the kernel started a process, in clock ticks since boot; None if there is
    none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The process name in parentheses can contain any character, so count the fields from the end of
    # the name.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def record_of(pid: int) -> ProcessRecord | None:
    """Return the record of a running process; None if it is gone."""
    ticks = _start_ticks(pid)
    return None if ticks is None else ProcessRecord(pid, ticks, boot_id())


def read_record(path: Path) -> ProcessRecord | None:
    """Return the record in a file; None if the file is missing or has no record."""
    try:
        return ProcessRecord(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel send SIGTERM to this process when its parent dies. The setting survives an
    exec.

    If the parent has already ended, end this process at once.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent_pid:
        raise SystemExit(0)


@dataclass(frozen=True, slots=True)
class PortHolder:
    """The process that uses a port.

    `pid` is None if this account cannot see it, or if no process uses the port any more.
    """

    pid: int | None
    command: str
    is_listening: bool = True

    def __str__(self) -> str:
        if self.pid is None:
            return self.command or "a process that this account cannot see"
        how = "" if self.is_listening else ", for an outgoing connection that will end"
        return f"process {self.pid} ({self.command}){how}"


def port_is_free(host: str, port: int) -> bool:
    """Return whether a listener can bind to this address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def has_address(host: str) -> bool:
    """Return whether a listener on this machine can bind to an IP address, at some port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return False
        raise
    return True


def addresses_of_this_machine() -> list[str]:
    """Return the IP addresses of this machine at which other machines can reach it."""
    found = [
        ipaddress.ip_address(one.address.partition("%")[0])
        for several in psutil.net_if_addrs().values()
        for one in several
        if one.family in (socket.AF_INET, socket.AF_INET6)
    ]
    return [str(one) for one in found if not (one.is_loopback or one.is_link_local)]


def holder_of(port: int) -> PortHolder:
    """Return the process that uses a TCP port of this machine.

    If a process listens on the port, return that process. Otherwise return the owner of a
    connection with this local port; an ended connection is used only if there is no other.
    """
    try:
        found = [c for c in psutil.net_connections(kind="tcp") if c.laddr and c.laddr.port == port]
    except psutil.AccessDenied:
        return PortHolder(None, "")
    found.sort(key=lambda one: (one.status != psutil.CONN_LISTEN, one.pid is None))
    for connection in found:
        is_listening = connection.status == psutil.CONN_LISTEN
        if connection.pid is not None:
            return PortHolder(connection.pid, _command_of(connection.pid), is_listening)
        if not is_listening:
            return PortHolder(
                None, "a connection that has ended; the port is free again within a minute"
            )
    return PortHolder(None, "")


def _command_of(pid: int) -> str:
    """Return only the program of a process, because the arguments can contain passwords."""
    try:
        process = psutil.Process(pid)
        words = process.cmdline()
        # If the process is an interpreter, the name of the module or script says more than the
        # interpreter's.
        if len(words) > 2 and words[1] == "-m":
            return f"{process.name()} -m {words[2]}"
        return process.name()
    except psutil.Error:
        return "it has ended in the meantime"
