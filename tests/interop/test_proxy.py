"""nginx in front of the page, configured as in docs/proxy.md. It asks for a password, passes the
right Host header, and forwards events at once."""

import base64
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.mill.home import CODE
from tests.harness.broker import BrokerProcess
from tests.harness.monitor import MonitorProcess
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]

PASSWORD = "mill:race"
START_S = 30.0


class Proxy:
    """An nginx with the server block of docs/proxy.md, on a test's ports, with a test's certificate
    and password."""

    def __init__(self, folder: Path, monitor_port: int) -> None:
        self.port = free_port()
        page = (CODE / "docs" / "proxy.md").read_text()
        (server,) = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)
        for told, ours in (
            ("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"),
            ("127.0.0.1:8090", f"127.0.0.1:{monitor_port}"),
            ("/etc/ssl/", f"{folder}/"),
            ("/etc/nginx/", f"{folder}/"),
        ):
            assert told in server
            server = server.replace(told, ours)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
             "-subj", "/CN=mill.example.org", "-keyout", folder / "mill.key",
             "-out", folder / "mill.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
        user, _, password = PASSWORD.partition(":")
        hashed = subprocess.run(
            ["openssl", "passwd", "-apr1", password], check=True, capture_output=True, text=True
        ).stdout
        (folder / "mill.htpasswd").write_text(f"{user}:{hashed}")
        places = "".join(
            f"{kind}_temp_path {folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "nginx.conf").write_text(
            f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
            # nginx started by root would otherwise run its workers as a user without access to this
            # folder.
            "user root;\nevents {}\n"
            f"http {{ access_log off; {places}\n{server} }}\n"
        )
        self.process = subprocess.Popen(["nginx", "-c", folder / "nginx.conf", "-p", folder])

    def get(self, path: str, password: str | None = PASSWORD) -> tuple[int, str]:
        """Return the status code and the first line of the response body."""
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}")
        request.add_header("Host", "mill.example.org")
        if password is not None:
            request.add_header(
                "Authorization", f"Basic {base64.b64encode(password.encode()).decode()}"
            )
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=10, context=trusting) as answer:
                return answer.status, answer.readline().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, ""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with BrokerProcess(tmp_path / "broker") as broker:
        monitor = MonitorProcess([broker], tmp_path / "monitor", refresh="500ms")
        made = Proxy(tmp_path, monitor.port)
        try:
            wait_until(lambda: is_up(made), START_S, "the page is there")
            yield made
        finally:
            made.process.terminate()
            made.process.wait()
            monitor.kill()


def is_up(proxy: Proxy) -> bool:
    try:
        return proxy.get("/healthz")[0] == 200
    except OSError:
        return False


def test_the_page_is_behind_a_password_and_alive(proxy: Proxy) -> None:
    assert proxy.get("/", None)[0] == 401
    assert proxy.get("/", "mill:wrong")[0] == 401
    assert proxy.get("/") == (200, "<!doctype html>")
    assert proxy.get("/api/v1/lag")[0] == 200
    # The first event arrives although the response never ends, so nginx does not buffer it.
    code, event = proxy.get("/events")
    assert code == 200
    assert re.fullmatch(r'data: \{"seq":\d+\}', event), event
