"""A collector on another host: enrolled, joined, run, killed, and revoked. Lines arrive once.

The other host is another folder on this machine. It reaches the mill only by the listener NET.
"""

from __future__ import annotations

import json
import signal
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.enrol.join_file import parse
from tests.e2e.joined_host import Host
from tests.e2e.mill import TempMill, temp_mill
from tests.harness.collector import TopicReader
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

MILL = """
network: {open: [kafka], names: [localhost], login: users}
cluster: {brokers: 1}
collector: {inputs: []}
stream: {metrics: []}
sinks: {mysql: null}
monitor: {listen: 127.0.0.1:8090}
topics: [{name: logs.access, partitions: 2}]
"""


def counted(reader: TopicReader) -> Counter[bytes]:
    """Return how often each line is in the topic."""
    return Counter(value for _, _, value in reader.poll())


def expected(count: int) -> Counter[bytes]:
    return Counter(b"line %d" % number for number in range(count))


def enrolled(mill: TempMill) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(mill.run("enrol", "list", "--json").out)["data"]
    return rows


@contextmanager
def open_mill(folder: Path) -> Iterator[TempMill]:
    """Run a mill whose listener NET requires logins. It has no user yet."""
    with temp_mill(folder) as mill:
        mill.write_config(MILL)
        config = mill.home.config_file
        ports = f"ports: {{net: {free_ports(1)}, "
        config.write_text(config.read_text().replace("ports: {", ports))
        mill.up()
        yield mill


def enrol(mill: TempMill, folder: Path, *options: str) -> Path:
    """Write the join file of web-07."""
    made = mill.run("enrol", "collector", "web-07", "--out", str(folder), *options)
    assert made.code == 0, made.err
    return folder / "web-07.join"


def holders(folder: Path, secret: str) -> set[str]:
    """Return the names of the files that have a secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name for path in files if secret.encode() in path.read_bytes()}


def lets_in(mill: TempMill, folder: Path, host: Host) -> None:
    """Let the host join, with everything that can go wrong at the mill and on the hosts."""
    password = folder / "admin"
    password.write_text("of an administrator\n")
    early = mill.run("enrol", "collector", "web-07", "--out", str(folder))
    assert early.code == 3 and "`./millrace user add admin`" in early.err
    mill.run("user", "add", "admin", "--password-file", str(password))
    file = enrol(mill, folder, "--group", "web")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    twice = mill.run("enrol", "collector", "web-07", "--out", str(folder))
    assert twice.code == 3 and "--again" in twice.err
    (row,) = enrolled(mill)
    assert (row["name"], row["group"], row["state"]) == ("web-07", "web", "waiting")
    checked = host.run("join", str(file), "--check")
    assert checked.returncode == 0 and "1 broker can be reached" in checked.stderr, checked
    assert host.run("collector", "run").returncode == 3, "it has not joined"
    joined = host.run("join", str(file))
    assert joined.returncode == 0, joined.stderr
    assert f"delete {file}" in joined.stderr and "millrace collector run" in joined.stderr
    assert enrolled(mill)[0]["state"] == "joined"
    refused = Host(folder / "other").run("join", str(file))
    assert refused.returncode == 3 and "used, has expired or was revoked" in refused.stderr
    assert host.run("join", str(file)).returncode == 0, "typed again on its host it is no error"
    assert stat.S_IMODE(host.secret("password").stat().st_mode) == 0o600
    secrets = [parse(file.read_text()).secret, host.secret("password").read_text().strip()]
    assert [holders(mill.home.folder, one) for one in secrets] == [set(), set()]
    assert [holders(host.folder, one) for one in secrets] == [set(), {"password"}]
    host.config.write_text(host.config.read_text() + f"ports: {{collector: {host.port}}}\n")


def test_a_host_joins_collects_and_is_revoked(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    with open_mill(tmp_path / "mill") as mill:
        lets_in(mill, tmp_path, host)
        reader = TopicReader(mill.bootstrap(1), "logs.access", range(2))
        host.write(range(2_000))
        with host.collector() as process:
            wait_until(lambda: counted(reader) == expected(2_000), 120, "the first lines")
            own = [("millrace.host", b"web-07")]
            assert reader.headers == dict.fromkeys(expected(2_000), own)
            host.write(range(2_000, 4_000))
            process.send_signal(signal.SIGKILL)
        with host.collector() as process:
            wait_until(lambda: counted(reader) == expected(4_000), 120, "the lines after a kill")
            renewed = host.run("join", "--renew")
            assert renewed.returncode == 0, renewed.stderr
            host.write(range(4_000, 5_000))
            wait_until(lambda: counted(reader) == expected(5_000), 120, "the lines after a renewal")
            denied = "authorization denied"
            assert denied not in mill.home.part_log("broker-1").read_text(), (
                "it needs no other right"
            )
            revoked = mill.run("enrol", "revoke", "web-07", "--yes")
            assert revoked.code == 0, revoked.err
            host.write(range(5_000, 6_000))
            wait_until(
                lambda: "refused the login" in str(host.problems()), 120, "the status says why"
            )
            assert process.poll() is None
        lost = host.run("join", "--check")
        assert lost.returncode == 3 and "was revoked" in lost.stderr
        assert (counted(reader), enrolled(mill)) == (expected(5_000), [])
        file = enrol(mill, tmp_path, "--group", "web")
        assert host.run("join", str(file)).returncode == 0
        with host.collector():
            wait_until(lambda: counted(reader) == expected(6_000), 120, "the lines from then on")
        reader.close()
        is_a_copy(host, file)
        many_are_enrolled(mill, tmp_path)


def is_a_copy(host: Host, file: Path) -> None:
    """Pitfall 35: a copied machine, and the folder of another cluster."""
    note = host.secret("joined.json")
    known = json.loads(note.read_text())
    note.write_text(json.dumps({**known, "machine_id": "another"}))
    copied = host.run("collector", "run")
    assert (
        copied.returncode == 3
        and "with the id another, but the id of this machine is" in copied.stderr
    )
    note.write_text(json.dumps({**known, "cluster_id": "another-cluster"}))
    foreign = host.run("join", str(file))
    assert foreign.returncode == 3
    assert "another-cluster" in foreign.stderr and known["cluster_id"] in foreign.stderr


def many_are_enrolled(mill: TempMill, folder: Path) -> None:
    """A file with names gives a join file each. `--again` keeps the group of a host."""
    names = folder / "names"
    names.write_text("# of the databases\ndb-1\n\ndb-2\n")
    options = ("--group", "db", "--topic", "audit", "--out", str(folder / "files"))
    many = mill.run("enrol", "collector", "--from", str(names), *options, "--json")
    assert many.code == 0, many.err
    files = [parse(Path(row["file"]).read_text()) for row in json.loads(many.out)["data"]]
    assert [(one.name, one.group, one.topic) for one in files] == [
        ("db-1", "db", "audit"),
        ("db-2", "db", "audit"),
    ]
    again = mill.run("enrol", "collector", "db-1", "--again", "--out", str(folder))
    assert again.code == 0, again.err
    another = parse((folder / "db-1.join").read_text())
    assert (another.group, another.topic) == ("db", "audit")
    assert another.secret != files[0].secret and another.ends_ms > files[0].ends_ms
    states = {row["name"]: row["state"] for row in enrolled(mill)}
    assert states == {"web-07": "joined", "db-1": "waiting", "db-2": "waiting"}
