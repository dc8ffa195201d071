"""`millrace run PART`: the entry point of every part, for the supervisor and in containers.

It loads and checks the configuration, passes the part its settings on an inherited descriptor, and
replaces itself by the part's process. Because the process is replaced, signals reach the part
directly, and the exit code is the part's own. Redis and MySQL start in the same way.
"""

import os
import sys

from appliance.errors import Failure
from appliance.launch import native, servers
from appliance.launch.extras import missing_for
from appliance.machine.processes import PARENT_VARIABLE, die_with_parent
from appliance.mill.moved_folder import refuse_absent
from appliance.mill.parts import status_ports
from appliance.mill.settings import Mill, encode_settings, room_of, settings_for

SERVERS = {"redis": servers.redis_command, "mysql": servers.mysql_command}


class UnknownPart(Exception):
    """The error for a part that the configuration does not have."""


def become(mill: Mill, name: str) -> None:
    """Replace this process by the process of a part.

    This function returns only in a container whose part is not in the configuration, when the
    container stops.
    """
    part = mill.part(name)
    if part is None:
        ports = status_ports(mill.config) if mill.placement.in_containers else {}
        if name in ports:
            # Import this module only here. It loads an event loop and a server, which the other
            # parts do not need.
            from appliance.launch.unasked import wait_unasked

            wait_unasked(mill, name, ports[name])
            return
        known = ", ".join(part.name for part in mill.parts)
        raise UnknownPart(f"this configuration has no part {name!r}, expected one of {known}")
    if parent := os.environ.pop(PARENT_VARIABLE, None):
        die_with_parent(int(parent))
    if name in SERVERS and not mill.placement.in_containers:
        command = SERVERS[name](mill)
    else:
        room = room_of(name)
        if missing := missing_for(room):
            raise Failure(missing)
        folder = mill.home.part_data(name)
        refuse_absent(folder)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = settings_descriptor(encode_settings(settings_for(mill, name)))
        # With -P Python does not search the current folder first, which can be the folder of the
        # sources.
        command = [sys.executable, "-P", "-m", room, "--settings-fd", str(descriptor)]
        code = mill.home.code
        os.environ["PYTHONPATH"] = native.python_path(code) if room == "broker" else str(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)


def settings_descriptor(data: bytes) -> int:
    """Return an inherited descriptor from which exactly these bytes can be read. Nothing is written
    to a disk."""
    descriptor = os.memfd_create("settings", 0)
    os.set_inheritable(descriptor, True)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
