"""The connect scan finds each open port, and no other."""

import socket

import pytest

from tests.harness import port_scan
from tests.harness.port_scan import SilentPorts, open_ports
from tests.harness.ports import free_ports


def test_it_finds_each_open_port_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more ports than connections at once, and both ends of the range are open."""
    monkeypatch.setattr(port_scan, "AT_ONCE", 8)
    count = 2 * port_scan.AT_ONCE
    first = free_ports(count)
    wanted = [first, first + 5, first + count - 1]
    listeners = [socket.create_server(("127.0.0.1", port)) for port in wanted]
    try:
        assert open_ports("127.0.0.1", range(first, first + count)) == wanted
        assert open_ports("127.0.0.2", range(first, first + count)) == []
    finally:
        for one in listeners:
            one.close()


def test_a_port_that_does_not_answer_is_not_called_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue of connections drops further ones without an answer."""
    monkeypatch.setattr(port_scan, "SILENT_S", 0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        with pytest.raises(SilentPorts):
            open_ports(address[0], [address[1]])
        for one in waiting:
            one.close()
