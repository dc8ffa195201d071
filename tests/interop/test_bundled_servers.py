"""The bundled Redis and MySQL with the mill's own configuration, without the rest of the mill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from appliance.config.load import load_text
from appliance.launch.servers import find_program, mysql_command
from appliance.mill.home import find_home
from appliance.mill.init import initialise, read_secret
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, and stop it when the block ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
        process.terminate()
        assert process.wait(60) == 0, log.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def mill_in(folder: Path, text: str) -> Mill:
    home = find_home({"MILLRACE_HOME": str(folder)})
    config = load_text(text, "mill.yaml", folder, {}).config
    initialise(home, config.cluster.broker_ids)
    return Mill(home, config, Placement())


def mysql_user(port: int, user: str, password: str, **options: Any) -> str:
    """Log in and return the account that the server has chosen. Raises pymysql.err.Error."""
    connection = pymysql.connect(
        host="127.0.0.1", port=port, user=user, password=password, connect_timeout=5, **options
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        row = cursor.fetchone()
        assert row is not None
        return str(row[0])


@pytest.mark.skipif(find_program("mariadbd", "mysqld") is None, reason="no database server")
def test_root_needs_its_password_at_every_address(tmp_path: Path) -> None:
    port = free_port()
    mill = mill_in(tmp_path, f"ports: {{mysql: {port}}}")
    reader = read_secret(mill.home, "mysql/reader")
    with running(mysql_command(mill), tmp_path / "mysql.log"):
        wait_until(lambda: mysql_user(port, "reader", reader), 60, "MySQL answers")
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            mysql_user(port, "root", "")
