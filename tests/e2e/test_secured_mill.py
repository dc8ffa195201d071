"""A mill of one broker with TLS and logins. Its parts count every line, and its secrets are in no
log, page, status or metric (pitfall 23)."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.e2e.mill import SHIPPED, TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.e2e.test_up_counts import COUNTED_S, STATUSES
from tests.harness.logs import shared_log
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

CANARY = "canary-that-must-stay-hidden"
PAGES_MIN = 15
"""A crawl of the page finds at least so many addresses."""

NET = """
network: {open: [kafka], names: [localhost], login: users}
"""
ALERTS = """\
  admin: true
  alerts: {webhook: "http://127.0.0.1:9/hook-of-${file:canary}", token: "${file:canary}"}
"""
PARTS = ("collector", "stream", "monitor", "broker-1")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TempMill, int]]:
    """Return a mill whose users `admin` and `shop` have the canary as their password, and the port
    of its listener NET."""
    net = free_ports(1)
    with temp_mill(tmp_path_factory.mktemp("secured") / "mill") as mill:
        (mill.home.folder / "canary").write_text(f"{CANARY}\n")
        shipped = SHIPPED.read_text().replace("brokers: 3 ", "brokers: 1 ")
        mill.write_config(f"{NET}{shipped.rstrip()}\n{ALERTS}")
        config = mill.home.config_file
        config.write_text(config.read_text().replace("ports: {", f"ports: {{net: {net}, "))
        mill.up()
        for user in ("admin", "shop"):
            password = ("--password-file", str(mill.home.folder / "canary"))
            assert mill.run("user", "add", user, *password).code == 0
        allowed = mill.run("acl", "allow", "shop", "write", "--topic", "logs.access")
        assert allowed.code == 0, allowed.err
        yield mill, net


def settings(mill: TempMill, net: int, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{net}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(mill.home.data / "ca.pem"),
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "shop",
        "sasl.password": CANARY,
        **more,
    }


def test_lines_are_counted_exactly_whichever_listener_they_come_by(
    secured: tuple[TempMill, int],
) -> None:
    """The collector writes over the listener of the machine, and a user over TLS."""
    mill, net = secured
    log = shared_log("apache_access.log")
    mill.drop(log, "access/apache_access.log")
    producer = Producer(settings(mill, net))
    line = log.read_bytes().splitlines()[0]
    producer.produce("logs.access", line)
    assert producer.flush(30) == 0
    status = line.split(b'"')[2].split()[0].decode()
    expected = {one: str(count + (one == status)) for one, count in STATUSES.items()}
    reading = Reading(mill)
    key = "mill:requests_by_status:all"
    wait_until(lambda: reading.redis(key) == expected, COUNTED_S, "all lines are counted")
    assert mill.show("requests_by_status") == expected


def test_what_a_user_may_not_do_is_in_the_log_of_the_broker(
    secured: tuple[TempMill, int],
) -> None:
    mill, net = secured
    found = Producer(settings(mill, net)).list_topics("logs.json", timeout=20).topics["logs.json"]
    assert found.error is not None
    assert found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert re.search(
        r"INFO broker-1 authorization denied user=shop address=127\.0\.0\.1 operation=describe"
        r" resource=topic:logs\.json request=metadata",
        mill.home.part_log("broker-1").read_text(),
    )


def told_by(
    mill: TempMill, parts: tuple[str, ...] = ("broker_status", "collector", "stream")
) -> Iterator[tuple[str, bytes]]:
    """Yield everything that the mill tells its readers, with the place. `parts` are the names of
    ports."""
    for words in (("status",), ("status", "--json"), ("doctor",), ("config", "show"), ("up",)):
        result = mill.run(*words)
        yield " ".join(words), (result.out + result.err).encode()
    for path in mill.home.logs.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()
    for name in parts:
        for page in ("/status", "/metrics"):
            yield f"{name}{page}", fetched(f"http://127.0.0.1:{mill.ports[name]}{page}")
    address = f"http://127.0.0.1:{mill.ports['monitor']}"
    pages = ["/", "/status", "/metrics", "/api/v1/health", "/api/v1/alerts", "/api/v1/rules"]
    for page in pages:
        body = fetched(f"{address}{page}")
        yield page, body
        found = re.findall(r'(?:href|src|action)="(/[^"#]*)"', body.decode(errors="replace"))
        pages += [one for one in dict.fromkeys(found) if one not in pages]
    assert len(pages) >= PAGES_MIN, pages


def fetched(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return bytes(answer.read(4 << 20))
    except urllib.error.HTTPError as error:
        return error.read()


def secrets_of(mill: TempMill) -> dict[str, bytes]:
    """Return the secrets of the mill that are made at its first start, and the canary."""
    found = {"canary": CANARY.encode()}
    for path in mill.home.secrets.rglob("*"):
        if path.is_file() and path.suffix != ".pem" and path.name != "cluster_id":
            text = path.read_bytes().strip()
            # The middle of a key is in no other text.
            found[str(path)] = text.splitlines()[1] if path.suffix == ".key" else text
    return found


def test_pitfall_23_no_secret_is_shown_or_logged(secured: tuple[TempMill, int]) -> None:
    mill, _ = secured
    secrets = secrets_of(mill)
    assert {Path(name).name for name in secrets} >= {"login_secret", "mysql", "redis", "tls.key"}
    found = [
        (place, name)
        for place, content in told_by(mill)
        for name, secret in secrets.items()
        if secret in content
    ]
    assert found == []
    # The search looks where a secret would be.
    logs = {path.stem for path in mill.home.logs.glob("*.log")}
    assert logs >= set(PARTS), logs
