"""The page behind a proxy: it works below any path, whether the proxy keeps or strips it, and
accepts only allowed host names."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from monitor.config.settings import ClusterSection, MonitorSection, MonitorSettings
from monitor.http import PAGES, create_app
from monitor.sampling.clusters import clusters_of
from monitor.sampling.sampler import Sampler
from tests.harness.wait import wait_until
from tests.unit.monitor.admin.test_pages import RESET, TOKEN, Scripted, hidden
from tests.unit.monitor.sampling.test_clusters import other
from tests.unit.monitor.test_http import Addresses, Script, never, some_reading

ROOT = "/tools/millrace"
GROUP_PAGE = "/groups/millrace-stream"
ALL = (*PAGES, GROUP_PAGE, "/topics/logs.access", "/topics/logs.access/messages", "/clusters",
       "/clusters/shop", "/admin", "/api/docs", "/groups/none")  # fmt: skip


@contextmanager
def site(root_path: str = ROOT, hosts: tuple[str, ...] = ("mill.example",)) -> Iterator[TestClient]:
    shop = ClusterSection(name="shop", bootstrap_servers="shop:9092")
    settings = MonitorSettings(
        section=MonitorSection(root_path=root_path, hosts=hosts, admin=True, clusters=(shop,)),
        bootstrap_servers="127.0.0.1:9092", data_dir="data", parts={}, token=TOKEN,
    )  # fmt: skip
    sampler = Sampler(settings, Script(some_reading()), lambda: 10_000)
    clusters = clusters_of(settings, lambda: 10_000, lambda _: Script(other()))
    app = create_app(
        settings, sampler, started_at_ms=0, clock_ms=lambda: 10_000, on_failure=never,
        orders=Scripted(), clusters=clusters,
    )  # fmt: skip
    with TestClient(app, base_url="http://127.0.0.1:8090") as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, 10, "the first snapshot")
        wait_until(lambda: clusters.views()[0].is_known, 10, "the other cluster is asked")
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with site() as opened:
        yield opened


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize("prefix", ["", ROOT], ids=["left out", "kept"])
def test_every_address_stands_below_the_root(client: TestClient, path: str, prefix: str) -> None:
    answer = client.get(prefix + path)
    assert answer.status_code == (404 if path == "/groups/none" else 503
                                  if path.endswith("messages") else 200), answer.text  # fmt: skip
    page = Addresses()
    page.feed(answer.text)
    outside = [one for one in page.found if not one.startswith((f"{ROOT}/", "#"))]
    assert outside == []
    assert len(page.found) > 10


@pytest.mark.parametrize("prefix", ["", ROOT], ids=["left out", "kept"])
def test_every_address_that_stands_on_a_page_is_answered(client: TestClient, prefix: str) -> None:
    page = Addresses()
    page.feed(client.get(f"{prefix}/").text)
    for address in {one.partition("#")[0] for one in page.found if one.startswith("/")}:
        answer = client.get(address.removeprefix(ROOT) if not prefix else address)
        assert answer.status_code == 200, address


@pytest.mark.parametrize("prefix", ["", ROOT], ids=["left out", "kept"])
def test_the_page_one_is_on_is_marked(client: TestClient, prefix: str) -> None:
    page = client.get(prefix + GROUP_PAGE).text
    assert f'href="{ROOT}/groups" aria-current="page"' in page
    assert page.count('aria-current="page"') == 1


def test_orders_stay_below_the_root(client: TestClient) -> None:
    here = {"Origin": "https://mill.example", "X-Forwarded-Host": "mill.example"}
    words = {"who": "Ada", "token": TOKEN}
    entered = client.post("/admin/enter", data=words, headers=here, follow_redirects=False)
    assert entered.headers["location"] == f"{ROOT}/admin"
    assert f"Path={ROOT}/" in entered.headers["set-cookie"]
    key = entered.headers["set-cookie"].partition(";")[0]
    text = client.get("/admin", headers={"Cookie": key})
    secret = {"form_secret": hidden(text, "form_secret")}
    answer = client.post(
        "/admin/reset-offsets", data=secret | RESET, headers=here | {"Cookie": key}
    )
    assert answer.status_code == 200
    assert f'action="{ROOT}/admin/reset-offsets/confirm"' in answer.text
    foreign = client.post(
        "/admin/reset-offsets", data=secret | RESET,
        headers={"Origin": "https://other.example", "Cookie": key},
    )  # fmt: skip
    assert foreign.status_code == 403


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "mill.example"}, 200),
        ({"Host": "MILL.example:443"}, 200),
        ({"Host": "127.0.0.1:8090", "X-Forwarded-Host": "mill.example"}, 200),
        ({"Host": "[::1]:8090"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "mill.example.evil"}, 421),
        ({"Host": "127.0.0.1:8090", "X-Forwarded-Host": "evil.example"}, 421),
        ({"Host": ""}, 421),
    ],
)
def test_names_are_allowed_one_by_one(
    client: TestClient, headers: dict[str, str], code: int
) -> None:
    assert client.get("/groups", headers=headers).status_code == code


def test_a_name_that_is_not_allowed_is_refused_without_a_proxy_too() -> None:
    with site("", ()) as plain:
        assert plain.get("/groups", headers={"Host": "mill.example"}).status_code == 421
        page = Addresses()
        page.feed(plain.get("/").text)
        assert not any(one.startswith(ROOT) for one in page.found)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("root_path", "millrace"),
        ("root_path", "/millrace/"),
        ("root_path", "/"),
        ("root_path", "/a//b"),
        ("root_path", '/"><script>'),
        ("hosts", ["mill.example:443"]),
        ("hosts", ["https://mill.example"]),
        ("hosts", ["*"]),
        ("hosts", [""]),
    ],
)
def test_what_is_no_path_or_name_is_a_fault(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match="expected a"):
        MonitorSection.model_validate({key: value})
