"""A mill of three brokers as another machine sees it: closed, then opened by `network.listen`.

Pitfall 40: a port for administrators is open by default (AKHQ #470). The mill runs in a network
namespace, and the other machine is a second one. So the whole mill is there, with the addresses and
ports that it has on a machine.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
import socket
import ssl
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from protocol.client.errors import BrokerUnreachable
from protocol.client.login import LoginSettings
from protocol.client.tls import TlsSettings
from protocol.messages.cluster import ApiVersionsRequest
from tests.e2e.mill import SHIPPED, Result, TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.harness.namespaces import Namespaces, can_be_made, own_network
from tests.harness.port_scan import open_ports
from tests.harness.ports import free_ports
from tests.harness.secured import brokers_found
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

STRANGER = 1
"""The namespace of the other machine."""
NAME = "mill.example.test"
PASSWORD = "correct-horse-battery"
BEFORE_A_LOGIN = {17: "SaslHandshake", 18: "ApiVersions", 36: "SaslAuthenticate"}
API_KEYS_MAX = 100
COUNTED_S = 120.0
LINE = '192.0.2.9 - - [28/Nov/2026:09:00:00 +0000] "GET /z HTTP/1.1" {} 1 "-" "curl/8.5.0"'
STATUSES = Counter({"200": 40, "404": 7, "503": 3})
TLS_ALERT = b"\x15\x03"
TLS_ALERT_BYTES = 7

Sockets = set[tuple[str, int]]


@dataclass
class Scene:
    """The open mill, and what was seen before it was opened."""

    mill: TempMill
    spaces: Namespaces
    nets: list[int]
    closed: list[int]
    """The ports that the other machine reached while the mill was closed."""
    told_by_up: Result
    shut: list[int]
    """The ports that it reached before a super user had a password."""

    @property
    def host(self) -> str:
        """The address of the mill's machine."""
        return self.spaces.router_of(STRANGER)

    @property
    def tls(self) -> TlsSettings:
        return TlsSettings(ca=str(self.mill.home.data / "ca.pem"))

    def kcat(self, *arguments: str, lines: str = "") -> str:
        """Run kcat as the user shop on the other machine, which knows the mill by its name."""
        hosts, conf = self.mill.home.folder / "hosts", self.mill.home.folder / "shop.conf"
        hosts.write_text(f"{self.host} {NAME}\n")
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.tls.ca,
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "shop",
            "sasl.password": PASSWORD,
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        done = subprocess.run(
            [
                *self.spaces.command(STRANGER),
                *("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"'),
                *(str(hosts), "kcat", "-F", str(conf), "-b", f"{NAME}:{self.nets[0]}"),
                *arguments,
            ],
            input=lines, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def opened(host: str) -> str:
    return f"network: {{open: [kafka], listen: 0.0.0.0, names: [{NAME}, {host}], login: users}}"


def write(mill: TempMill, net: int, network: str) -> None:
    mill.write_config(f"{network}\n{SHIPPED.read_text()}")
    config = mill.home.config_file
    config.write_text(config.read_text().replace("ports: {", f"ports: {{net: {net}, "))


def sockets_beyond_loopback() -> tuple[Sockets, Sockets]:
    """Return the TCP listeners and the UDP sockets of this namespace that are not on the
    loopback."""
    found: list[Sockets] = []
    for kind in ("tcp", "udp"):
        these: Sockets = set()
        for one in psutil.net_connections(kind=kind):
            if not one.laddr:
                continue
            address = ipaddress.ip_address(one.laddr.ip)
            address = getattr(address, "ipv4_mapped", None) or address
            if one.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and not address.is_loopback:
                these.add((one.laddr.ip, one.laddr.port))
        found.append(these)
    return found[0], found[1]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if not can_be_made():
        pytest.skip("network namespaces need root")
    folder = tmp_path_factory.mktemp("open") / "mill"
    with own_network(), Namespaces((STRANGER,)) as spaces, temp_mill(folder) as mill:
        host, net = spaces.router_of(STRANGER), free_ports(3)
        write(mill, net, "")
        mill.up()
        assert sockets_beyond_loopback() == (set(), set())
        with spaces.inside(STRANGER):
            closed = open_ports(host)
        (mill.home.folder / "password").write_text(f"{PASSWORD}\n")
        write(mill, net, opened(host))
        told = mill.run("up", "--apply")
        assert told.code == 0, f"{told.err}\n{mill.log_ends()}"
        nets = [net, net + 1, net + 2]
        with spaces.inside(STRANGER):
            shut = open_ports(host, nets)
        for user in ("admin", "shop"):
            added = mill.run(
                "user", "add", user, "--password-file", str(mill.home.folder / "password")
            )
            assert added.code == 0, added.err
        allowed = mill.run("acl", "allow", "shop", "read,write", "--topic", "logs.", "--prefixed")
        assert allowed.code == 0, allowed.err
        with spaces.inside(STRANGER):
            wait_until(lambda: open_ports(host, nets) == nets, 30, "each broker has opened NET")
        yield Scene(mill, spaces, nets, closed, told, shut)


def test_pitfall_40_nothing_of_a_closed_mill_is_reached(scene: Scene) -> None:
    assert scene.closed == []


def test_pitfall_40_another_machine_reaches_the_listener_with_logins_alone(scene: Scene) -> None:
    """It dials each of the 65,535 ports. The sockets say the same for all addresses of the machine,
    also for those of IPv6, and for UDP."""
    with scene.spaces.inside(STRANGER):
        assert open_ports(scene.host) == scene.nets
    assert sockets_beyond_loopback() == ({("0.0.0.0", port) for port in scene.nets}, set())


def test_nothing_is_reached_before_a_super_user_has_a_password(scene: Scene) -> None:
    assert scene.shut == []
    assert "./millrace user add admin" in scene.told_by_up.err


def test_brokers_open_in_turn_and_up_status_and_doctor_say_what_is_open(scene: Scene) -> None:
    assert "broker-1, broker-2, broker-3 restart one after the other" in scene.told_by_up.err
    ports = ", ".join(map(str, scene.nets))
    text = f"Kafka with TLS and logins at 0.0.0.0, ports {ports}; names {NAME}, {scene.host}"
    assert f"  other machines   {text}\n" in scene.told_by_up.out + scene.told_by_up.err
    assert f"millrace: open to other machines: {text}\n" in scene.mill.run("status").err
    checks = json.loads(scene.mill.run("doctor", "--json").out)["data"]
    assert [one["found"] for one in checks if one["what"] == "open to other machines"] == [text]


def answer_to(host: str, port: int, request: bytes) -> bytes:
    """Return everything that the broker sends until it closes the connection."""
    with socket.create_connection((host, port), 20) as plain:
        plain.sendall(request)
        return all_of(plain)


def all_of(link: socket.socket) -> bytes:
    found = bytearray()
    try:
        while chunk := link.recv(4096):
            found += chunk
    except ConnectionError:
        pass
    return bytes(found)


def request_frame(api_key: int) -> bytes:
    """Return a request of version 0 without a client id, whose body is zeros."""
    content = struct.pack(">hhih", api_key, 0, 1, -1) + bytes(16)
    return struct.pack(">i", len(content)) + content


def test_a_client_without_tls_gets_no_answer(scene: Scene) -> None:
    requests = [
        request_frame(18),
        request_frame(3),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 64,
    ]
    with scene.spaces.inside(STRANGER):
        for port in scene.nets:
            for request in requests:
                found = answer_to(scene.host, port, request)
                is_alert = found.startswith(TLS_ALERT) and len(found) <= TLS_ALERT_BYTES
                assert not found or is_alert, (port, request, found)


def test_a_client_without_a_login_gets_no_answer_but_the_versions(scene: Scene) -> None:
    """Each request that is not part of a login closes the connection, whether the broker knows it
    or not."""
    context = ssl.create_default_context(cafile=scene.tls.ca)
    closing = [one for one in range(API_KEYS_MAX) if one not in BEFORE_A_LOGIN]
    with scene.spaces.inside(STRANGER):
        for port in scene.nets:
            for api_key in closing:
                with (
                    socket.create_connection((scene.host, port), 20) as plain,
                    context.wrap_socket(plain, server_hostname=NAME) as link,
                ):
                    link.sendall(request_frame(api_key))
                    assert all_of(link) == b"", (port, api_key)
            with WireClient(f"{scene.host}:{port}") as client:
                client.socket = context.wrap_socket(client.socket, server_hostname=NAME)
                assert client.ask(ApiVersionsRequest(), 0).api_keys
                client.socket.sendall(request_frame(3))
                assert client.is_hung_up()


def test_a_wrong_password_and_an_unknown_user_get_in_nowhere(scene: Scene) -> None:
    with scene.spaces.inside(STRANGER):
        wrong = [(port, "shop", "wrong-horse-battery") for port in scene.nets]
        for port, user, password in (*wrong, (scene.nets[0], "stranger", PASSWORD)):
            with pytest.raises(BrokerUnreachable, match=r"[Ll]ogin|password"):
                login = LoginSettings(user, password)
                brokers_found(f"{scene.host}:{port}", scene.tls, login, timeout_ms=3_000)


def test_lines_from_another_machine_are_counted(scene: Scene) -> None:
    """The other machine dials the name of the mill. Each broker tells it this name, and never an
    address of the loopback."""
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    told = json.loads(scene.kcat("-L", "-J"))
    assert {one["name"] for one in told["brokers"]} == {f"{NAME}:{port}" for port in scene.nets}
    lines = [LINE.format(status) for status in STATUSES.elements()]
    scene.kcat("-P", "-t", "logs.access", lines="".join(f"{one}\n" for one in lines))
    read = scene.kcat("-C", "-t", "logs.access", "-o", "beginning", "-e", "-q")
    assert sorted(read.splitlines()) == sorted(lines)
    reading = Reading(scene.mill)
    expected = {status: str(count) for status, count in STATUSES.items()}
    wait_until(
        lambda: reading.redis("mill:requests_by_status:all") == expected,
        COUNTED_S,
        f"Redis shows {expected}",
    )


def test_an_address_of_another_machine_is_refused_while_the_mill_goes_on(scene: Scene) -> None:
    config = scene.mill.home.config_file
    before = config.read_text()
    config.write_text(before.replace("listen: 0.0.0.0", "listen: 192.0.2.77"))
    try:
        refused = scene.mill.run("up", "--apply")
    finally:
        config.write_text(before)
    assert refused.code == 1
    assert "this machine does not have the address 192.0.2.77" in refused.err
    assert f"(127.0.0.1, {scene.host})" in refused.err
    assert "nothing was changed" in refused.err
    with scene.spaces.inside(STRANGER):
        assert open_ports(scene.host, scene.nets) == scene.nets
