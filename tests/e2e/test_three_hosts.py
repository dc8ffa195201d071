"""A mill on three hosts, each in its own network namespace: counts stay exact while a broker is
killed and a host is cut off, and other machines reach only what they may.

The tests run in the order of this file, on one mill.
"""

from __future__ import annotations

import json
import signal
import socket
import ssl
from collections.abc import Iterator

import pytest

from appliance.machine.processes import read_record
from tests.e2e.hosted_mill import HOSTS, STRANGER, HostedMill, hosted_mill
from tests.e2e.hosted_scene import HostedScene
from tests.e2e.joined_host import Host
from tests.harness.port_scan import open_ports
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]

PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedScene]:
    folder = tmp_path_factory.mktemp("hosts")
    with hosted_mill(folder) as mill:
        # A host that has not joined starts nothing, and says what to type.
        mill.hosts[2].home.config_file.write_text(mill.main.home.config_file.read_text())
        refused = mill.run(2, "up")
        assert refused.code == 1
        assert "the host of broker 2, and has not joined" in refused.err
        assert not mill.hosts[2].home.secrets.exists()
        mill.hosts[2].home.config_file.unlink()
        for host in (2, 3):
            mill.joins(host, folder)
        # `up` is killed while it waits for the other hosts. The supervisor goes on.
        with mill.spaces.inside(1):
            begun = mill.main.begin("up")
        wait_until(lambda: read_record(mill.main.home.pid_file) is not None, 120, "a supervisor")
        begun.send_signal(signal.SIGKILL)
        begun.communicate()
        told = mill.up()
        assert "millrace" in told[1].err
        yield HostedScene(mill, folder)


def test_each_host_runs_its_parts_and_sees_the_brokers_of_the_others(scene: HostedScene) -> None:
    mill = scene.mill
    with mill.spaces.inside(1):
        parts = set(mill.main.status())
    assert parts == {"broker-1", "collector", "stream", "monitor", "mysql", "redis"}
    for host in HOSTS[1:]:
        with mill.spaces.inside(host):
            assert set(mill.hosts[host].status()) == {f"broker-{host}"}
    for host in HOSTS:
        mill.wait_for(host, {one: "in service" for one in HOSTS if one != host})
    shown = mill.run(2, "status")
    assert shown.code == 0
    for host in (1, 3):
        assert f"broker-{host}  {mill.name_of(host)}" in shown.out + shown.err


def test_lines_are_counted_and_commands_work_on_each_host(scene: HostedScene) -> None:
    scene.write()
    scene.is_exact()
    for host in HOSTS:
        found = json.loads(scene.mill.run(host, "topic", "list", "--json").out)
        assert "logs.access" in {row["topic"] for row in found["data"]}


def test_clients_of_the_local_listener_learn_that_a_leader_is_elsewhere(scene: HostedScene) -> None:
    """A broker names no address of another host's loopback. Metadata has the error
    LISTENER_NOT_FOUND for its leaders, and only this host's broker."""
    port = scene.mill.main.ports["host"]
    listed = scene.mill.run(1, "broker", "list", "-b", f"127.0.0.1:{port}", "--json")
    rows = {row["broker"]: row for row in json.loads(listed.out)["data"]}
    assert rows[1]["address"] == f"127.0.0.1:{port}"
    assert {rows[one]["address"] for one in (2, 3) if one in rows} == {None}


def test_pitfall_40_other_machines_reach_two_ports_of_each_host(scene: HostedScene) -> None:
    mill = scene.mill
    with mill.spaces.inside(STRANGER):
        for host in HOSTS:
            wanted = sorted((mill.net + host - 1, mill.main.ports["broker"] + host - 1))
            assert open_ports(mill.spaces.host_of(host)) == wanted


def test_pitfall_14_the_listener_of_the_brokers_gives_nothing_without_a_certificate(
    scene: HostedScene,
) -> None:
    """A client gets no answer if it sends plain bytes, shows no certificate, or shows a certificate
    of another CA."""
    mill = scene.mill
    trust = ssl.create_default_context(cafile=str(mill.main.home.data / "ca.pem"))
    frame = b"\x00\x00\x00\x0e\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff" + bytes(4)
    with mill.spaces.inside(STRANGER):
        for host in HOSTS:
            address = (mill.spaces.host_of(host), mill.main.ports["broker"] + host - 1)
            with socket.create_connection(address, 20) as plain:
                plain.sendall(frame)
                assert all_of(plain)[:1] in (b"", b"\x15")
            with socket.create_connection(address, 20) as plain:
                link = trust.wrap_socket(plain, server_hostname=f"broker-{host}")
                with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
                    link.sendall(frame)
                    link.recv(1)


def all_of(link: socket.socket) -> bytes:
    found = bytearray()
    try:
        while chunk := link.recv(4096):
            found += chunk
    except ConnectionError:
        pass
    return bytes(found)


def test_a_collector_of_another_machine_joins(scene: HostedScene) -> None:
    mill, host = scene.mill, Host(scene.folder / "web-1")
    host.prefix = mill.prefix
    made = mill.run(1, "enrol", "collector", "web-1", "--out", str(scene.folder))
    assert made.code == 0, made.err
    with mill.spaces.inside(STRANGER):
        joined = host.run("join", str(scene.folder / "web-1.join"))
        assert joined.returncode == 0, joined.stderr
        host.config.write_text(f"{host.config.read_text()}ports: {{collector: {host.port}}}\n")
        with host.collector():
            scene.write(host.folder / "watched" / "access")
            scene.is_exact()


def test_counts_stay_exact_while_a_broker_is_killed_and_a_host_is_cut_off(
    scene: HostedScene,
) -> None:
    mill = scene.mill
    mill.kill_broker(2)
    scene.write()
    mill.wait_for(1, {2: "in service", 3: "in service"})
    with mill.cut_off(3):
        mill.wait_for(1, {2: "in service", 3: "out of service"})
        scene.write()
        scene.is_exact()
        shown = mill.run(1, "status")
        assert shown.code == 3
        assert f"broker 3 on {mill.name_of(3)} is out of service" in shown.err
        mill.wait_for(3, {1: "unknown", 2: "unknown"})
    mill.wait_for(1, {2: "in service", 3: "in service"})
    scene.write()
    scene.is_exact()


def test_a_host_that_was_away_catches_up(scene: HostedScene) -> None:
    mill = scene.mill
    assert mill.run(3, "down").code == 0
    mill.wait_for(1, {2: "in service", 3: "out of service"})
    scene.write()
    scene.is_exact()
    back = mill.run(3, "up")
    assert back.code == 0, back.err
    scene.in_sync()


def test_the_user_of_the_parts_returns_after_it_was_removed(scene: HostedScene) -> None:
    mill = scene.mill
    asked = mill.run(1, "user", "remove", "mill")
    assert asked.code == 2
    assert "user of the mill's own parts" in asked.err
    assert mill.run(1, "user", "remove", "mill", "--yes").code == 0
    wait_until(lambda: mill.run(2, "user", "list").code == 0, 90, "the parts log in again")
    scene.write()
    scene.is_exact()


def test_an_administrator_is_added_on_any_host(scene: HostedScene) -> None:
    mill = scene.mill
    file = scene.folder / "password"
    file.write_text(PASSWORD)
    added = mill.run(3, "user", "add", "admin", "--password-file", str(file))
    assert added.code == 0, added.err
    assert "admin" in mill.run(1, "user", "list").out


def test_a_new_certificate_is_used_without_a_restart(scene: HostedScene) -> None:
    mill = scene.mill
    assert mill.run(2, "cert", "renew").code == 3
    with mill.spaces.inside(1):
        made = mill.main.run("cert", "renew", "--for", "broker-2", "--out", str(scene.folder))
    assert made.code == 0, made.err
    before = presented(mill)
    installed = mill.run(2, "cert", "install", str(scene.folder / "broker-2.cert"))
    assert installed.code == 0, installed.err
    wait_until(lambda: presented(mill) != before, 60, "broker 2 shows the new certificate")
    mill.wait_for(1, {2: "in service", 3: "in service"})


def presented(mill: HostedMill) -> bytes:
    """Return the certificate that broker 2 shows to clients."""
    trust = ssl.create_default_context(cafile=str(mill.main.home.data / "ca.pem"))
    host = mill.spaces.host_of(2)
    with (
        mill.spaces.inside(STRANGER),
        socket.create_connection((host, mill.net + 1), 20) as plain,
        trust.wrap_socket(plain, server_hostname=mill.name_of(2)) as link,
    ):
        return link.getpeercert(binary_form=True) or b""


def test_each_host_is_stopped_for_itself(scene: HostedScene) -> None:
    for host in reversed(HOSTS):
        assert scene.mill.run(host, "down").code == 0
