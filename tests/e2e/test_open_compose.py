"""A mill in containers as another machine sees it: closed, then opened by the second compose file.

It is opened and restarted by the documented commands while files arrive. The other machine is a
network namespace beside the machine's own one, in which the container engine works.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests.e2e.containers import Containers, counts, mill_in_containers
from tests.e2e.joined_host import Host
from tests.e2e.mill import SHIPPED
from tests.e2e.test_up_counts import STATUSES
from tests.harness.logs import shared_log
from tests.harness.namespaces import Namespaces, can_be_made
from tests.harness.port_scan import open_ports
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3_600)]

STRANGER = 1
NAME = "mill.example.test"
PASSWORD = "correct-horse-battery"
NETS = [9192, 9193, 9194]
COUNTED_S = 240.0
LINE = '192.0.2.9 - - [28/Nov/2026:09:00:00 +0000] "GET /z HTTP/1.1" {} 1 "-" "curl/8.5.0"'
SENT = Counter({"200": 40, "404": 7, "503": 3})
PAGE = 8090
KAFKA_OPEN = f"""network: {{open: [kafka], listen: 0.0.0.0, names: [{NAME}], login: users}}
security: {{super_users: [admin]}}
"""
ALL_OPEN = f"""{KAFKA_OPEN.replace("[kafka]", "[kafka, page]")}
monitor: {{listen: "0.0.0.0:{PAGE}", login: users}}
"""
KAFKA_FILES = "COMPOSE_FILE=docker-compose.yml:docker-compose.open.yml\n"
ALL_FILES = f"{KAFKA_FILES.strip()}:docker-compose.open-page.yml\n"


@dataclass
class Scene:
    """The mill in containers, the other machine, and everything that should be counted."""

    mill: Containers
    spaces: Namespaces
    wanted: Counter[str] = field(default_factory=Counter)
    dropped: int = 0

    def drop(self) -> None:
        """Drop the shared log once more."""
        self.dropped += 1
        access = self.mill.folder / "watched" / "access"
        shutil.copyfile(shared_log("apache_access.log"), access / f"{self.dropped}.log")
        self.wanted += STATUSES

    def wait_counted(self) -> None:
        """Wait until exactly everything is counted."""
        expected = {status: str(count) for status, count in self.wanted.items()}
        wait_until(lambda: counts() == expected, COUNTED_S, f"Redis shows {expected}")

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Drop files all the time during the block, each one when the one before is counted."""
        ended = threading.Event()

        def work() -> None:
            while not ended.is_set():
                self.drop()
                self.wait_counted()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self.wait_counted()

    def reached(self) -> list[int]:
        """Return the ports of this machine that the other machine reaches."""
        with self.spaces.inside(STRANGER):
            return open_ports(self.spaces.router_of(STRANGER))

    def configure(self, network: str) -> None:
        """Write the shipped configuration with these sections."""
        shipped = yaml.safe_load(SHIPPED.read_text())
        file = self.mill.folder / "configs" / "millrace.yaml"
        file.write_text(yaml.safe_dump({**shipped, **yaml.safe_load(network)}))

    def page(self, scheme: str) -> tuple[int, str | None]:
        """Ask for the page from the other machine. Return the status, and where it leads."""
        host = self.spaces.router_of(STRANGER)
        with self.spaces.inside(STRANGER), socket.create_connection((host, PAGE), 20) as plain:
            link = plain
            if scheme == "https://":
                context = ssl.create_default_context(cafile=str(self.mill.folder / "ca.pem"))
                link = context.wrap_socket(plain, server_hostname=NAME)
            answer = http.client.HTTPConnection(NAME, PAGE)
            answer.sock = link
            answer.request("GET", "/", headers={"Host": f"{NAME}:{PAGE}"})
            found = answer.getresponse()
            return found.status, found.getheader("Location")

    @property
    def prefix(self) -> tuple[str, ...]:
        """The prefix that runs a command on the other machine, which knows the mill by its name."""
        hosts = self.mill.folder / "hosts"
        hosts.write_text(f"{self.spaces.router_of(STRANGER)} {NAME}\n")
        mount = 'mount --bind "$0" /etc/hosts && exec "$@"'
        inside = self.spaces.command(STRANGER)
        return (*inside, "unshare", "--mount", "sh", "-c", mount, str(hosts))

    def collects_elsewhere(self, join: str) -> None:
        """Let the other machine join as a collector, and let it collect the shared log."""
        host = Host(self.mill.folder / "host")
        host.prefix = self.prefix
        file = self.mill.folder / "web-07.join"
        file.write_text(join)
        joined = host.run("join", str(file))
        assert joined.returncode == 0, joined.stderr
        folder = host.folder / "watched" / "access"
        shutil.copyfile(shared_log("apache_access.log"), folder / "elsewhere.log")
        self.wanted += STATUSES
        with host.collector():
            self.wait_counted()

    def kcat(self, *arguments: str, lines: str = "") -> str:
        """Run kcat as the user shop on the other machine."""
        folder = self.mill.folder
        conf, ca = folder / "shop.conf", folder / "ca.pem"
        ca.write_text(
            self.mill.compose(
                "run", "--rm", "-T", "--entrypoint", "cat", "cli", "/mill/data/ca.pem"
            )
        )
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca),
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "shop",
            "sasl.password": PASSWORD,
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        done = subprocess.run(
            [*self.prefix, "kcat", "-F", str(conf), "-b", f"{NAME}:{NETS[0]}", *arguments],
            input=lines, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    if not can_be_made():
        pytest.skip("only root can make a network namespace")
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    with Namespaces((STRANGER,)) as spaces, mill_in_containers(tmp_path) as mill:
        mill.compose("build", "init", "stream")
        yield Scene(mill, spaces)


def test_a_mill_in_containers_is_opened_while_it_counts(scene: Scene) -> None:
    mill = scene.mill
    before = scene.reached()
    mill.compose("up", "--detach", "--wait")
    assert scene.reached() == before, "a closed mill is not reached"
    scene.configure(KAFKA_OPEN)
    refused = mill.attempt("up", "--detach", "--wait")
    assert refused.returncode != 0, "the second compose file is not used yet"

    (mill.folder / ".env").write_text(KAFKA_FILES)
    with scene.dropping():
        said = mill.roll()
    restarted = [one.split()[1] for one in said if one.startswith("restarting ")]
    assert sorted(restarted) == ["broker-1", "broker-2", "broker-3"]
    assert scene.reached() == before, "NET opens when a super user has a password"

    for user in ("admin", "shop"):
        mill.compose(
            *("run", "--rm", "-T", "cli", "user", "add", user, "--password-file", "-"),
            stdin=PASSWORD,
        )
    mill.cli("acl", "allow", "shop", "read,write", "--topic", "logs.", "--prefixed")
    wait_until(lambda: scene.reached() == sorted([*before, *NETS]), 60, "each broker opens NET")
    lines = [LINE.format(status) for status in SENT.elements()]
    scene.kcat("-P", "-t", "logs.access", lines="".join(f"{one}\n" for one in lines))
    scene.wanted += SENT
    scene.wait_counted()

    scene.collects_elsewhere(mill.cli("enrol", "collector", "web-07", "--out", "-"))
    assert "broker-3" in mill.compose("run", "--rm", "-T", "init", "cert", "show")
    assert "Kafka with TLS and logins at 0.0.0.0, ports 9192, 9193, 9194" in mill.cli("doctor")

    (mill.folder / ".env").write_text(ALL_FILES)
    scene.configure(ALL_OPEN)
    mill.compose(
        *("run", "--rm", "-T", "cli", "user", "add", "ada", "--page", "--role", "operator"),
        *("--password-file", "-"),
        stdin=PASSWORD,
    )
    with scene.dropping():
        mill.roll()
    assert scene.reached() == sorted([*before, *NETS, PAGE])
    assert scene.page("https://") == (303, "/login?next=/")
    assert scene.page("http://")[0] == 400
    assert "millrace-stream" in mill.cli("lag"), "commands need no login"
