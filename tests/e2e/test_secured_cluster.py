"""A mill without brokers uses the brokers of another mill over TLS, as a user with few rights.

Its collector, stream and monitor count every line while a broker is killed and while the password
is changed. The password is shown nowhere (pitfall 23).
"""

import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import redis

from appliance.mill.home import CODE
from protocol.status import fetch_status
from tests.e2e.mill import TempMill, brokers_only, temp_mill
from tests.e2e.reading import Reading
from tests.e2e.test_secured_mill import told_by
from tests.e2e.test_up_counts import COUNTED_S, STATUSES
from tests.harness.logs import shared_log
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

USER = "mill"
CANARIES = ("canary-of-the-first-password", "canary-of-the-second-password")
ADMIN = "a-password-of-the-super-user"
REMEDY = "compare cluster.security.user and cluster.security.password"
PARTS = ("collector", "stream", "monitor")
RECOVERED_S = 120.0
"""A part that was refused waits for up to 30 s before it tries again."""

NET = "network: {open: [kafka], names: [localhost], login: users}\n"
CONFIG = """
cluster:
  bootstrap_servers: "{servers}"
  security: {{ca: ca.pem, user: {user}, password: "${{file:secret}}"}}
topics: [{{name: logs.access, partitions: 3, replication: 3}}]
collector: {{inputs: [{{paths: ["watched/access/**"], topic: logs.access}}]}}
stream:
  from: {{access: {{topic: logs.access, format: combined}}}}
  defaults: {{windows: [all]}}
  metrics: [{{name: requests_by_status, from: access, key: status, measure: count}}]
sinks: {{mysql: null}}
monitor: {{listen: 127.0.0.1:8090}}
"""


@dataclass
class Scene:
    """The mill with the brokers, and the mill that uses them."""

    theirs: TempMill
    mine: TempMill

    @property
    def secret(self) -> Path:
        """The file of the password."""
        return self.mine.home.folder / "secret"

    def counts(self) -> Counter[str]:
        """Return the number of counted lines of each status."""
        # Without MySQL, readers need the user `reader`.
        port = self.mine.ports["redis"]
        with redis.Redis(
            port=port, username="reader", password="reader", decode_responses=True
        ) as client:
            found: dict[str, str] = client.hgetall("mill:requests_by_status:all")
        return Counter({status: int(count) for status, count in found.items()})

    def count(self, times: int) -> None:
        """Wait until the log was counted as often as it was written."""
        expected = Counter({status: count * times for status, count in STATUSES.items()})
        wait_until(lambda: self.counts() == expected, RECOVERED_S, f"{times} logs are counted")

    def is_refused(self, part: str) -> bool:
        """Return whether the status of a part says that its login is refused, and what to do."""
        problems = fetch_status("127.0.0.1", self.mine.ports[part], 5.0).problems
        said = " ".join(one.text for one in problems)
        return "refused the login" in said and REMEDY in said

    def drop(self, name: str) -> None:
        self.mine.drop(shared_log("apache_access.log"), f"access/{name}")

    def set_password(self, user: str, password: str, verb: str) -> None:
        file = self.theirs.home.folder / "new-password"
        file.write_text(f"{password}\n")
        result = self.theirs.run("user", verb, user, "--password-file", str(file))
        file.unlink()
        assert result.code == 0, result.err


def documented_rights() -> list[list[str]]:
    """Return the commands of docs/kafka.md that give a mill its rights."""
    page = (CODE / "docs" / "kafka.md").read_text()
    return [shlex.split(one) for one in re.findall(r"^\./millrace (acl allow .*)$", page, re.M)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder, net = tmp_path_factory.mktemp("secured-cluster"), free_ports(3)
    with temp_mill(folder / "theirs") as theirs, temp_mill(folder / "mine") as mine:
        theirs.write_config(f"{NET}{brokers_only('3')}")
        config = theirs.home.config_file
        config.write_text(config.read_text().replace("ports: {", f"ports: {{net: {net}, "))
        theirs.up()
        made = Scene(theirs, mine)
        made.set_password("admin", ADMIN, "add")
        made.set_password(USER, CANARIES[0], "add")
        for words in documented_rights():
            given = theirs.run(*words)
            assert given.code == 0, given.err
        made.secret.write_text(f"{CANARIES[0]}\n")
        (mine.home.folder / "ca.pem").write_bytes((theirs.home.data / "ca.pem").read_bytes())
        servers = ",".join(f"localhost:{net + one}" for one in range(3))
        mine.write_config(CONFIG.format(servers=servers, user=USER))
        mine.up()
        yield made
        print(mine.log_ends(10))


def test_lines_are_counted_exactly_while_a_broker_is_killed(scene: Scene) -> None:
    scene.drop("a.log")
    scene.count(1)
    scene.drop("b.log")
    assert Reading(scene.theirs).process("broker-2").signal(signal.SIGKILL)
    scene.count(2)


def test_a_changed_password_is_told_and_taken_from_the_file(scene: Scene) -> None:
    scene.set_password(USER, CANARIES[1], "password")
    scene.drop("c.log")
    for part in PARTS:
        wait_until(partial(scene.is_refused, part), COUNTED_S, f"{part} says why")
    told = scene.mine.run("topic", "list")
    assert told.code != 0
    assert REMEDY in told.err
    before = {part: Reading(scene.mine).process(part).pid for part in PARTS}
    scene.secret.write_text(f"{CANARIES[1]}\n")
    scene.count(3)
    assert {part: Reading(scene.mine).process(part).pid for part in PARTS} == before


def test_commands_and_the_monitor_use_the_cluster(scene: Scene) -> None:
    wait_until(lambda: scene.mine.run("lag").code == 0, COUNTED_S, "the lag is known")
    listed = scene.mine.run("topic", "list")
    assert "logs.access" in listed.out, listed.err
    states = {part: row["state"] for part, row in scene.mine.status().items()}
    assert states == dict.fromkeys(("redis", *PARTS), "healthy"), scene.mine.status()
    doctor = scene.mine.run("doctor")
    assert doctor.code == 0, doctor.out + doctor.err


def test_pitfall_23_the_password_is_shown_nowhere(scene: Scene) -> None:
    places, found = [], []
    for place, content in left_by(scene):
        places.append(place)
        found += [(place, one) for one in CANARIES if one.encode() in content]
    assert found == []
    # The search looks where a password would be.
    for place in ("stream.log", "/checkpoint/offsets/0", "/cmdline", "stream/status"):
        assert any(one.endswith(place) for one in places), place


def left_by(scene: Scene) -> Iterator[tuple[str, bytes]]:
    """Yield everything that the mill tells and writes, and what the machine shows of processes."""
    yield from told_by(scene.mine, ("collector", "stream"))
    for path in scene.mine.home.folder.rglob("*"):
        if path.is_file() and path != scene.secret:
            yield str(path), path.read_bytes()
    for name in ("cmdline", "environ"):
        for path in Path("/proc").glob(f"[0-9]*/{name}"):
            try:
                yield str(path), path.read_bytes()
            except OSError:
                # The process has ended, or belongs to another user.
                continue
