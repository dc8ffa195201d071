"""A mill whose page is open to other machines, as another machine sees it.

The mill runs in a network namespace, and the other machine is a second one, as in `test_open_mill`.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.e2e.mill import SERVERS_ONLY, Result, TempMill, temp_mill
from tests.e2e.test_open_mill import all_of, sockets_beyond_loopback
from tests.harness.namespaces import Namespaces, can_be_made, own_network
from tests.harness.port_scan import open_ports
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

STRANGER = 1
"""The namespace of the other machine."""
NAME = "mill.example.test"
PASSWORD = "canary-horse-battery"
PATHS = ("/", "/topics", "/status", "/metrics", "/api/v1/lag", "/events", "/admin", "/none")


@dataclass
class Scene:
    """The open mill, and what was printed while it was opened."""

    mill: TempMill
    spaces: Namespaces
    refused: Result
    """The answer of `up` before there was a person."""
    told: Result
    token: str

    @property
    def host(self) -> str:
        return self.spaces.router_of(STRANGER)

    @property
    def port(self) -> int:
        return self.mill.ports["monitor"]

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        """Ask over HTTPS under the mill's name. Call it in the namespace of the stranger."""
        return self._exchange("GET", path, None, headers)

    def post(
        self, path: str, words: dict[str, str], **headers: str
    ) -> tuple[int, dict[str, str], str]:
        kind = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return self._exchange("POST", path, urlencode(words), kind)

    def _exchange(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], str]:
        context = ssl.create_default_context(cafile=str(self.mill.home.data / "ca.pem"))
        link = http.client.HTTPSConnection(self.host, self.port, timeout=20, context=context)
        try:
            link.request(method, path, body, {"Host": f"{NAME}:{self.port}", **headers})
            answer = link.getresponse()
            found = {key.lower(): value for key, value in answer.getheaders()}
            return answer.status, found, answer.read().decode()
        finally:
            link.close()

    def log_in(self, name: str, password: str) -> tuple[int, dict[str, str], str]:
        origin = f"https://{NAME}:{self.port}"
        return self.post("/login", {"name": name, "password": password}, Origin=origin)


def write(mill: TempMill, host: str) -> None:
    network = f"network: {{open: [page], names: [{NAME}, {host}]}}\n"
    mill.write_config(network + SERVERS_ONLY + "sinks: {mysql: null}\n")
    file = mill.home.config_file
    port = mill.ports["monitor"]
    listen = f"listen: 127.0.0.1:{port}"
    text = file.read_text()
    assert listen in text
    file.write_text(text.replace(listen, f'listen: "0.0.0.0:{port}", login: users'))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if not can_be_made():
        pytest.skip("network namespaces need root")
    folder = tmp_path_factory.mktemp("page") / "mill"
    with own_network(), Namespaces((STRANGER,)) as spaces, temp_mill(folder) as mill:
        write(mill, spaces.router_of(STRANGER))
        assert mill.run("init").code == 0
        refused = mill.run("up")
        password = folder / "password"
        password.write_text(f"{PASSWORD}\n")
        for name, role in (("ada", "operator"), ("bea", "viewer")):
            words = ("user", "add", name, "--page", "--role", role)
            added = mill.run(*words, "--password-file", str(password))
            assert added.code == 0, added.err
        password.unlink()
        told = mill.up()
        token = mill.run("token", "add", "prometheus").out.strip()
        yield Scene(mill, spaces, refused, told, token)


def test_without_a_person_the_mill_does_not_open(scene: Scene) -> None:
    assert scene.refused.code != 0
    assert "./millrace user add NAME --page --role operator" in scene.refused.err


def test_pitfall_40_another_machine_reaches_the_page_alone(scene: Scene) -> None:
    with scene.spaces.inside(STRANGER):
        assert open_ports(scene.host) == [scene.port]
    assert sockets_beyond_loopback() == ({("0.0.0.0", scene.port)}, set())


def test_up_status_and_doctor_say_what_is_open(scene: Scene) -> None:
    url = f"https://{NAME}:{scene.port}"
    text = f"the page with HTTPS and logins at 0.0.0.0, port {scene.port}: {url}"
    assert text in scene.told.out + scene.told.err
    assert f"millrace: open to other machines: {text}\n" in scene.mill.run("status").err


def test_without_a_login_another_machine_gets_nothing(scene: Scene) -> None:
    with scene.spaces.inside(STRANGER):
        for path in PATHS:
            code, _, body = scene.ask(path)
            assert code in (303, 401), path
            assert "broker" not in body and "topic" not in body, path
        assert scene.ask("/healthz")[::2] == (200, "ok\n")
        assert "Millrace " not in scene.ask("/login")[2], "the form does not show the version"
        with socket.create_connection((scene.host, scene.port), 20) as plain:
            plain.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = all_of(plain)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f"https://{NAME}:{scene.port}/".encode() in answer


def test_people_and_scripts_get_in_with_what_they_have(scene: Scene) -> None:
    with scene.spaces.inside(STRANGER):
        assert scene.ask("/metrics", Authorization=f"Bearer {scene.token}")[0] == 200
        assert scene.ask("/metrics", Authorization=f"Bearer {scene.token[:-1]}x")[0] == 401
        code, headers, _ = scene.log_in("ada", PASSWORD)
        assert code == 303
        cookie = headers["set-cookie"].partition(";")[0]
        assert cookie.startswith("__Host-mill=")
        assert "Signed in as <b>ada</b>" in scene.ask("/", Cookie=cookie)[2]
        assert scene.log_in("ada", "wrong-horse-battery")[0] == 403


def test_the_mills_own_commands_work_as_before(scene: Scene) -> None:
    assert scene.mill.status()["monitor"]["state"] == "healthy"
    for words in (("lag", "--json"), ("alerts", "list", "--json"), ("top", "--json")):
        found = scene.mill.run(*words)
        assert found.code in (0, 3, 4), (words, found.err)
        assert "gives no answer" not in found.err and "401" not in found.err


def test_a_change_of_the_people_needs_no_restart(scene: Scene) -> None:
    # An earlier test sent a wrong password from this address, so a login may have to wait.
    with scene.spaces.inside(STRANGER):
        wait_until(lambda: scene.log_in("bea", PASSWORD)[0] == 303, 30, "bea logs in")
    assert scene.mill.run("user", "remove", "bea", "--page", "--yes").code == 0
    with scene.spaces.inside(STRANGER):
        wait_until(lambda: scene.log_in("bea", PASSWORD)[0] == 403, 30, "bea is refused")
    assert scene.mill.run("token", "remove", "prometheus", "--yes").code == 0
    with scene.spaces.inside(STRANGER):
        assert scene.ask("/metrics", Authorization=f"Bearer {scene.token}")[0] == 401


def test_pitfall_23_no_password_token_or_session_is_left_anywhere(
    scene: Scene, tmp_path: Path
) -> None:
    with scene.spaces.inside(STRANGER):
        found: list[dict[str, str]] = []

        def logged_in() -> bool:
            code, headers, _ = scene.log_in("ada", PASSWORD)
            found.append(headers)
            return code == 303

        wait_until(logged_in, 60, "ada logs in")
    session = found[-1]["set-cookie"].partition("=")[2].partition(";")[0]
    canaries = [PASSWORD, scene.token, session]
    backup = tmp_path / "backup"
    words = (
        ("status", "--json"),
        ("doctor", "--json"),
        ("config", "show"),
        ("user", "list", "--page"),
    )
    told = [scene.mill.run(*one) for one in (*words, ("token", "list"), ("backup", str(backup)))]
    texts = [one.out + one.err for one in told]
    for folder in (scene.mill.home.data, backup):
        texts += [
            path.read_bytes().decode("latin-1")
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        ]
    with scene.spaces.inside(STRANGER):
        for path in ("/", "/status", "/api/v1/events", "/api/v1/parts"):
            texts.append(scene.ask(path, Cookie=f"__Host-mill={session}")[2])
    assert len(texts) > 20 and len(session) >= 40
    for canary in canaries:
        assert not any(canary in text for text in texts)
    assert json.loads(told[0].out)["data"]
