"""A mill whose TLS listener requires a login. Its users can log in, and no file has a password in
plain text."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.client.errors import BrokerUnreachable
from protocol.client.login import LoginSettings
from protocol.client.tls import TlsSettings
from tests.e2e.mill import TempMill, temp_mill
from tests.harness.ports import free_ports
from tests.harness.secured import brokers_found
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

CONFIG = """
network: {open: [kafka], names: [localhost], login: users}
cluster: {brokers: 3}
collector: {inputs: []}
stream: {metrics: []}
sinks: {mysql: null}
monitor: {listen: 127.0.0.1:8090}
"""
CANARY = "canary of a password"


def reached(mill: TempMill, port: int, password: str) -> int:
    """Return the number of brokers that a client of the user `shop` finds. The client trusts the
    copy of the CA that the mill writes for clients."""
    trusting = TlsSettings(ca=str(mill.home.data / "ca.pem"))
    return brokers_found(f"localhost:{port}", trusting, LoginSettings("shop", password))


def reasons(mill: TempMill) -> list[str]:
    """Return what is wrong with each broker; an empty text if nothing is."""
    found = mill.status()
    return [str(found[f"broker-{number}"]["reason"] or "") for number in (1, 2, 3)]


def test_a_mill_with_users(tmp_path: Path) -> None:
    net = free_ports(3)
    password = tmp_path / "password"
    password.write_text(f"{CANARY}\n")
    with temp_mill(tmp_path / "mill") as mill:
        mill.write_config(CONFIG)
        config = mill.home.config_file
        config.write_text(config.read_text().replace("ports: {", f"ports: {{net: {net}, "))
        said = mill.up().err
        shut = "listener NET is shut, because no user of super.users (admin) has a password"
        assert shut in said and "`./millrace user add admin`" in said
        assert all(shut in reason for reason in reasons(mill))
        with pytest.raises(BrokerUnreachable, match="refused"):
            reached(mill, net, CANARY)
        mill.run("user", "add", "admin", "--password-file", str(password))
        wait_until(lambda: not any(reasons(mill)), 30, "every broker has opened NET")
        with pytest.raises(BrokerUnreachable, match="invalid credentials"):
            reached(mill, net, CANARY)
        added = mill.run("user", "add", "shop", "--password-file", str(password))
        assert (added.code, added.err) == (0, "user shop can log in\n")
        assert reached(mill, net + 2, CANARY) == 3
        mill.run("restart", "broker-1")
        assert "shop" in mill.run("user", "list").out
        assert reached(mill, net, CANARY) == 3
        shown = mill.run("config", "show").out + mill.run("status").out + mill.run("doctor").out
        assert "certificate of broker-3" in shown
        mill.run("down")
        secret = (mill.home.secrets / "broker-1" / "login_secret").read_text()
        files = [path for path in mill.home.folder.rglob("*") if path.is_file()]
        assert not [path for path in files if CANARY.encode() in path.read_bytes()]
        kept = [path for path in files if secret.encode() in path.read_bytes()]
        assert {path.name for path in kept} == {"login_secret"}
        assert secret not in shown and CANARY not in shown
