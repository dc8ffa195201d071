"""A page with a login, and people at it, for tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fastapi.testclient import TestClient
from httpx import Response
from pydantic import SecretStr

from monitor.config.settings import MonitorSection, MonitorSettings, PageLogin
from monitor.http import create_app
from monitor.login.passwords import PasswordHash
from monitor.login.people import (
    PageRole,
    Person,
    ScriptToken,
    fingerprint_of,
    people_data,
    token_text,
    tokens_data,
)
from monitor.sampling.sampler import Sampler
from tests.harness.wait import wait_until
from tests.unit.monitor.admin.test_pages import Scripted
from tests.unit.monitor.test_http import Script, never, some_reading

HERE = "http://127.0.0.1:8090"
PASSWORD = "correct-horse-battery"
PROXY_SECRET = "a-secret-of-the-proxy-and-the-mill"
TOKEN = token_text(b"\x01" * 32)
OVER = token_text(b"\x02" * 32)
CHEAP = (4, 8, 1)


def person(name: str, role: PageRole = PageRole.VIEWER, password: str = PASSWORD) -> Person:
    return Person(name, role, PasswordHash.of(password, name.encode(), CHEAP))


ADA = person("ada", PageRole.OPERATOR)
BEA = person("bea")


@dataclass
class Rig:
    """A page, its files and its clock."""

    folder: Path
    now_ms: int = 10_000
    app: object = None
    orders: Scripted = field(default_factory=Scripted)

    def people(self, *people: Person) -> None:
        partial = self.folder / "partial"
        partial.write_bytes(people_data(people))
        partial.replace(self.folder / "users")

    def tokens(self, *tokens: ScriptToken) -> None:
        partial = self.folder / "partial"
        partial.write_bytes(tokens_data(tokens))
        partial.replace(self.folder / "tokens")

    def client(self, address: str = "192.0.2.7", base: str = HERE) -> TestClient:
        return TestClient(self.app, base_url=base, client=(address, 1), follow_redirects=False)  # type: ignore[arg-type]


@contextmanager
def page(
    folder: Path, mode: str = "users", proxies: tuple[str, ...] = (), root: str = ""
) -> Iterator[Rig]:
    rig = Rig(folder)
    rig.people(ADA, BEA)
    rig.tokens(
        ScriptToken("grafana", PageRole.VIEWER, str(fingerprint_of(TOKEN)), None),
        ScriptToken("old", PageRole.VIEWER, str(fingerprint_of(OVER)), 9_999),
    )
    settings = MonitorSettings(
        section=MonitorSection(admin=True, root_path=root),
        bootstrap_servers="127.0.0.1:9092",
        data_dir="data",
        parts={},
        login=PageLogin.model_validate(
            {
                "mode": mode,
                "folder": folder,
                "proxies": proxies,
                "proxy_secret": SecretStr(PROXY_SECRET) if mode == "proxy" else None,
                "roles": {"ops": "operator", "staff": "viewer"} if mode == "proxy" else {},
            }
        ),
    )
    sampler = Sampler(settings, Script(some_reading()), lambda: 10_000)
    rig.app = create_app(
        settings,
        sampler,
        started_at_ms=0,
        clock_ms=lambda: rig.now_ms,
        on_failure=never,
        orders=rig.orders,
    )
    with TestClient(rig.app, base_url=HERE) as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, 10, "the first snapshot")
        yield rig


def log_in(
    client: TestClient, name: str = "ada", password: str = PASSWORD, **more: str
) -> Response:
    words = {"name": name, "password": password} | more
    answer: Response = client.post("/login", data=words, headers={"Origin": str(client.base_url)})
    return answer


def hidden(answer: Response, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]+)"', answer.text)
    assert found is not None, answer.text
    return found[1]


def log_out(client: TestClient) -> Response:
    words = {"form_secret": hidden(client.get("/"), "form_secret")}
    answer: Response = client.post("/logout", data=words, headers={"Origin": str(client.base_url)})
    return answer
