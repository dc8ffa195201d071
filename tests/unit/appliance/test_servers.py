"""The configuration of MySQL and Redis, and their arguments, which contain no password."""

import hashlib
from pathlib import Path

import pytest

from appliance.config.load import load_text
from appliance.launch import servers
from appliance.launch.servers import ServerError, mysql_arguments, redis_configuration, users_sql
from appliance.mill.home import find_home
from appliance.mill.init import initialise, read_secret
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    initialise(home, (1,))
    return Mill(home, load_text("", "m", tmp_path, {}).config, Placement())


def test_redis_listens_on_loopback_and_knows_the_hash_only(tmp_path: Path) -> None:
    text = redis_configuration(str(tmp_path), 6380, "p4ssw0rd", is_only_sink=False)
    lines = text.splitlines()
    assert "bind 127.0.0.1" in lines
    assert "port 6380" in lines
    assert "maxmemory-policy noeviction" in lines
    assert "appendonly no" in lines
    assert "p4ssw0rd" not in text
    assert hashlib.sha256(b"p4ssw0rd").hexdigest() in text
    [default] = [line for line in lines if line.startswith("user default")]
    assert default.endswith("-@dangerous")
    assert "~mill:*" in default


def test_redis_alone_keeps_everything(tmp_path: Path) -> None:
    text = redis_configuration(str(tmp_path), 6380, "p", is_only_sink=True)
    assert "appendonly yes" in text
    assert "appendfsync always" in text


def test_mysql_is_durable_local_and_small(tmp_path: Path) -> None:
    arguments = mysql_arguments(tmp_path, 3307, tmp_path / "users.sql")
    assert arguments[0] == "--no-defaults"
    for wanted in (
        "--bind-address=127.0.0.1",
        "--port=3307",
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-buffer-pool-size=96M",
        "--character-set-server=utf8mb4",
        f"--init-file={tmp_path / 'users.sql'}",
    ):
        assert wanted in arguments


def test_the_socket_name_stays_short_in_any_folder(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    [socket] = [a for a in mysql_arguments(deep, 1, deep) if a.startswith("--socket=")]
    assert len(socket) < 100


def test_no_secret_is_an_argument(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_program", lambda *names: f"/usr/bin/{names[0]}")
    (mill.home.part_data("mysql") / "db").mkdir(parents=True)
    commands = [*servers.redis_command(mill), *servers.mysql_command(mill)]
    for name in ("mysql/root", "mysql/mill", "mysql/reader", "redis/password"):
        assert read_secret(mill.home, name) not in " ".join(commands)
    for path in (
        mill.home.part_data("redis") / "redis.conf",
        mill.home.part_data("mysql") / "users.sql",
    ):
        assert path.stat().st_mode & 0o077 == 0


def test_the_users_statements_are_one_a_line_and_escaped(mill: Mill) -> None:
    (mill.home.secrets / "mysql/mill").write_text("it's \\ odd")
    lines = users_sql(mill.home).splitlines()
    assert all(line.endswith(";") for line in lines)
    [create] = [line for line in lines if line.startswith("CREATE USER IF NOT EXISTS 'mill'")]
    assert create.endswith("IDENTIFIED BY 'it''s \\\\ odd';")
    assert any(line.startswith("GRANT SELECT, SHOW VIEW ON millrace.*") for line in lines)
    of_image = [line for line in users_sql(mill.home, in_image=True).splitlines() if "root" in line]
    assert of_image == ["DROP USER IF EXISTS 'root'@'%';"], "the image sets the password"


def test_root_without_a_password_is_dropped(mill: Mill) -> None:
    lines = users_sql(mill.home).splitlines()
    assert "DROP USER IF EXISTS 'root'@'127.0.0.1';" in lines
    assert "DROP USER IF EXISTS 'root'@'::1';" in lines


@pytest.mark.parametrize(
    ("command", "word"), [(servers.redis_command, "redis-server"), (servers.mysql_command, "MySQL")]
)
def test_a_missing_server_is_named_with_the_remedy(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, command: object, word: str
) -> None:
    monkeypatch.setattr(servers, "find_program", lambda *names: None)
    assert callable(command)
    with pytest.raises(ServerError, match=word) as raised:
        command(mill)
    assert "make setup" in str(raised.value)


def test_a_half_made_database_is_made_again(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = mill.home.part_data("mysql")
    (folder / "db.partialxyz").mkdir(parents=True)
    (folder / "tmp").mkdir()
    monkeypatch.setattr(servers, "find_program", lambda *names: "/bin/true")
    servers.make_database("/bin/true", folder, folder / "db")
    assert (folder / "db").is_dir()
    assert list(folder.glob("db.partial*")) == []


def test_a_failed_installation_leaves_no_database(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = mill.home.part_data("mysql")
    (folder / "tmp").mkdir(parents=True)
    monkeypatch.setattr(servers, "find_program", lambda *names: "/bin/false")
    with pytest.raises(ServerError, match="code 1"):
        servers.make_database("/bin/false", folder, folder / "db")
    assert not (folder / "db").exists()
