"""The page over HTTPS with real sockets: plain clients, replaced certificates, limits, and the
mill's own socket."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from appliance.mill.monitor_entry import SocketFileConnection
from appliance.supervisor.effects import ProbeResult
from appliance.supervisor.probes import probe_http
from monitor import serving
from monitor.__main__ import _server, certificate_of, clock_ms
from monitor.config.settings import MonitorSection, MonitorSettings, PageLogin, PageTls
from monitor.http import create_app
from monitor.sampling.sampler import Sampler
from monitor.tls import PageCertificate, UnusableCertificate
from protocol.status import fetch_status
from tests.harness.certificates import (
    PublicCertificate,
    TestAuthority,
    new_test_authority,
    public_certificate,
)
from tests.harness.ports import free_port
from tests.harness.wait import wait_until
from tests.unit.monitor.test_http import Script, never, some_reading

NAME = "mill.example.test"
NAMES = (NAME, "127.0.0.1", "localhost")
GET = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def write_pair(authority: TestAuthority, folder: Path, *names: str) -> PageTls:
    leaf = authority.leaf("monitor", names or NAMES)
    return write_files(folder, leaf.certificate, leaf.key)


def write_own(folder: Path, own: PublicCertificate) -> PageTls:
    return write_files(folder, own.leaf + own.intermediate, own.key)


def write_files(folder: Path, certificate: bytes, key: bytes) -> PageTls:
    for name, content in (("tls.key", key), ("tls.pem", certificate)):
        partial = folder / "partial"
        partial.write_bytes(content)
        partial.chmod(0o600)
        partial.replace(folder / name)
    return PageTls(certificate=folder / "tls.pem", key=folder / "tls.key")


@dataclass
class Served:
    """A page that listens, and the files of its certificate."""

    port: int
    folder: Path
    authority: TestAuthority
    server: uvicorn.Server

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.pair.certificate.decode())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 20)

    def ask(self, path: bytes, name: str = NAME) -> bytes:
        with (
            self.connect() as plain,
            self.trusting().wrap_socket(plain, server_hostname=name) as link,
        ):
            link.sendall(GET % path)
            return all_of(link)

    def shown(self) -> bytes:
        """Return the certificate that a new connection sees."""
        with (
            self.connect() as plain,
            self.trusting().wrap_socket(plain, server_hostname=NAME) as link,
        ):
            return link.getpeercert(binary_form=True) or b""


def all_of(link: socket.socket) -> bytes:
    found = bytearray()
    while chunk := link.recv(65_536):
        found += chunk
    return bytes(found)


@contextmanager
def served(
    folder: Path, *, is_secure: bool = True, own: PublicCertificate | None = None
) -> Iterator[Served]:
    authority, port = new_test_authority(folder), free_port()
    settings = MonitorSettings(
        section=MonitorSection(listen=f"127.0.0.1:{port}"),
        bootstrap_servers="127.0.0.1:9092",
        data_dir="data",
        parts={},
        login=PageLogin(mode="users", folder=folder),
        own_socket=folder / "monitor.sock",
        tls=write_own(folder, own) if own else write_pair(authority, folder) if is_secure else None,
        names=(NAME,),
    )
    sampler = Sampler(settings, Script(some_reading()), lambda: 10_000)
    certificate = certificate_of(settings)
    app = create_app(
        settings,
        sampler,
        started_at_ms=0,
        clock_ms=clock_ms,
        on_failure=never,
        certificate=certificate,
    )
    server = _server(app, settings, certificate)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, 20, "the server has started")
        yield Served(port, folder, authority, server)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as found:
        yield found


def test_the_page_is_served_under_each_name_and_only_over_tls(page: Served) -> None:
    for name in NAMES:
        assert page.ask(b"/login", name).startswith(b"HTTP/1.1 200"), name
    with pytest.raises(ssl.SSLCertVerificationError):
        page.ask(b"/login", "other.example.test")
    assert b"HTTP/1.1 401" in page.ask(b"/api/v1/lag")


def test_a_certificate_of_a_public_ca_is_sent_with_its_whole_chain(tmp_path: Path) -> None:
    """A public CA signs no names of the loopback, and browsers know only its root."""
    own = public_certificate(NAME)
    trusting = ssl.create_default_context(cadata=own.root.decode())
    with served(tmp_path, own=own) as page:
        with page.connect() as plain, trusting.wrap_socket(plain, server_hostname=NAME) as link:
            link.sendall(GET % b"/login")
            assert all_of(link).startswith(b"HTTP/1.1 200")
        write_files(tmp_path, own.leaf, own.key)
        with page.connect() as plain, pytest.raises(ssl.SSLCertVerificationError, match="issuer"):
            trusting.wrap_socket(plain, server_hostname=NAME)


def test_the_status_says_that_new_files_are_not_used(page: Served) -> None:
    assert "certificate" not in codes_of(page)
    write_pair(page.authority, page.folder, "other.example.test")
    assert "Hostname mismatch" in codes_of(page)["certificate"]
    write_pair(page.authority, page.folder)
    assert "certificate" not in codes_of(page)


def test_the_status_says_that_the_certificate_has_ended(tmp_path: Path) -> None:
    certificate = PageCertificate(write_own(tmp_path, public_certificate(NAME, days=2)), [NAME])
    now_ms = clock_ms()
    assert certificate.problem(now_ms) is None
    said = certificate.problem(now_ms + 2 * 86_400_000)
    assert said is not None and "tls.pem, ended at 2" in said


def codes_of(page: Served) -> dict[str, str]:
    """Return the texts of the problems in the status by their codes."""
    connection = SocketFileConnection(str(page.folder / "monitor.sock"), 20)
    connection.request("GET", "/status")
    found = json.loads(connection.getresponse().read())
    connection.close()
    return {one["code"]: one["text"] for one in found["problems"]}


@pytest.mark.parametrize(
    "request_bytes",
    [GET % b"/topics?q=secret", b"\0" * 64, b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n" * 5_000],
)
def test_plain_http_gets_400_that_names_https_and_nothing_else(
    page: Served, request_bytes: bytes
) -> None:
    with page.connect() as link:
        link.sendall(request_bytes)
        answer = all_of(link)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in head
    assert body == f"This page is served over HTTPS only: https://{NAME}:{page.port}/\n".encode()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_of_tls_are_refused(page: Served) -> None:
    context = page.trusting()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with page.connect() as plain, pytest.raises(OSError, match=r"."):
        context.wrap_socket(plain, server_hostname=NAME)
    assert page.ask(b"/healthz").startswith(b"HTTP/1.1 ")


def test_pitfall_25_a_new_certificate_serves_without_a_restart_and_a_wrong_one_does_not(
    page: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = page.shown()
    open_one = page.trusting().wrap_socket(page.connect(), server_hostname=NAME)
    write_pair(page.authority, page.folder)
    second = page.shown()
    assert second != first
    with open_one:
        open_one.sendall(GET % b"/login")
        assert all_of(open_one).startswith(b"HTTP/1.1 200"), "open connections stay"
    good_key = (page.folder / "tls.key").read_bytes()
    (page.folder / "tls.pem").write_text("half")
    assert page.shown() == second
    write_pair(page.authority, page.folder, "other.example.test")
    assert page.shown() == second, "it has lost the names of the page"
    (page.folder / "tls.key").write_bytes(good_key)
    assert page.shown() == second, "the key of another certificate"
    told = [str(vars(one)) for one in caplog.records]
    assert sum("the page keeps using the old one" in one for one in told) == 3
    assert not any("PRIVATE" in one for one in told)
    write_pair(page.authority, page.folder)
    assert page.shown() not in (first, second)


@pytest.mark.parametrize("spoil", ["name", "key", "mode", "missing", "half"])
def test_wrong_files_are_refused_at_the_start(tmp_path: Path, spoil: str) -> None:
    authority = new_test_authority(tmp_path)
    files = write_pair(authority, tmp_path, *(["x.test"] if spoil == "name" else NAMES))
    if spoil == "key":
        files.key.write_bytes(authority.leaf("monitor", NAMES).key)
    elif spoil == "mode":
        files.key.chmod(0o644)
    elif spoil == "missing":
        files.certificate.unlink()
    elif spoil == "half":
        files.certificate.write_bytes(files.certificate.read_bytes()[:300])
    with pytest.raises(UnusableCertificate):
        PageCertificate(files, NAMES)


def test_a_client_that_says_nothing_takes_no_place_of_others(
    page: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "GREETINGS_OF_ONE_MAX", 3)
    silent = [page.connect() for _ in range(3)]
    door = next(one for one in page.server.servers if isinstance(one, serving.TlsDoor))
    wait_until(lambda: len(door._greetings) == 3, 10, "three clients are silent")
    with page.connect() as refused:
        refused.settimeout(20)
        assert refused.recv(1) == b"", "the fourth of this address is closed at once"
    for one in silent:
        one.close()
    wait_until(lambda: not door._greetings, 10, "their places are free")
    assert page.ask(b"/healthz").startswith(b"HTTP/1.1 ")


def test_a_connection_without_a_request_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "FIRST_REQUEST_S", 0.2)
    with served(tmp_path) as page, page.connect() as silent:
        silent.settimeout(20)
        assert silent.recv(1) == b""
        with page.connect() as plain:
            plain.settimeout(20)
            try:
                with page.trusting().wrap_socket(plain, server_hostname=NAME) as link:
                    link.sendall(b"GET / HTTP/1.1\r\nHost:")
                    assert link.recv(1) == b""
            except (ssl.SSLError, ConnectionError):
                pass
        door = next(one for one in page.server.servers if isinstance(one, serving.TlsDoor))
        wait_until(lambda: not door._open, 10, "no connection is counted")


def test_without_free_descriptors_the_page_waits_before_it_accepts_again(
    page: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports a connection that cannot be accepted again and again."""
    door = next(one for one in page.server.servers if isinstance(one, serving.TlsDoor))
    accepted: list[int] = []

    class Full(socket.socket):
        def accept(self) -> Any:
            accepted.append(1)
            raise OSError(errno.EMFILE, "too many open files")

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        with Full(socket.AF_INET) as link:
            door._sockets.append(link)
            loop.add_reader(link.fileno(), door._accept, link)
            monkeypatch.setattr(serving, "ACCEPT_AGAIN_S", 0.0)
            door._accept(link)
            assert not loop.remove_reader(link.fileno()), "the loop does not look at the socket"
            async with asyncio.timeout(20):
                while not loop.remove_reader(link.fileno()):
                    await asyncio.sleep(0)
            door._sockets.remove(link)

    asyncio.run(scene())
    assert len(accepted) >= 1
    assert page.ask(b"/healthz").startswith(b"HTTP/1.1 ")


def test_an_open_page_has_descriptors_for_all_its_connections(tmp_path: Path) -> None:
    """The test runs in a separate process with the limit of a shell (1024)."""
    program = (
        "import asyncio, resource\n"
        "from types import SimpleNamespace\n"
        "from monitor.serving import TlsDoor\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))\n"
        "config = SimpleNamespace(host='127.0.0.1', port=0)\n"
        "async def listen():\n"
        "    door = TlsDoor(SimpleNamespace(config=config), None, '')\n"
        "    door.listen()\n"
        "    door.close()\n"
        "asyncio.run(listen())\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = serving.DESCRIPTORS_WANTED
    assert int(done.stdout) == (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))


def is_ready(path: Path) -> bool:
    return fetch_status("", 0, 10.0, SocketFileConnection(str(path), 10.0)).ready


@pytest.mark.parametrize("is_secure", [True, False])
def test_the_mills_own_socket_is_private_and_answers_without_a_login(
    tmp_path: Path, is_secure: bool
) -> None:
    path = tmp_path / "monitor.sock"
    path.write_text("a monitor that was killed left this")
    with served(tmp_path, is_secure=is_secure):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        wait_until(lambda: is_ready(path), 20, "the first snapshot")
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(path))
            link.sendall(GET % b"/api/v1/parts")
            head, _, body = all_of(link).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert json.loads(body)["schema"] == "parts/1"
    assert not os.path.exists(path)


def test_the_mills_own_socket_can_be_deep_in_the_file_system(tmp_path: Path) -> None:
    """The system takes at most 107 characters as the name of a socket."""
    folder = tmp_path / ("a-folder-with-a-long-name" * 5)
    folder.mkdir()
    path = folder / "monitor.sock"
    with served(folder, is_secure=False):
        wait_until(lambda: is_ready(path), 20, "the first snapshot")
        assert asyncio.run(probe_http(str(path), 0)) == (ProbeResult.OK, "")


def test_without_tls_a_login_works_on_the_loopback(tmp_path: Path) -> None:
    with served(tmp_path, is_secure=False) as page, page.connect() as link:
        link.sendall(GET % b"/login")
        assert all_of(link).startswith(b"HTTP/1.1 200")
