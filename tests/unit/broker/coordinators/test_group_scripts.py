"""Play `tests/scripts/*.txt`: the events of a group, line by line, with all results.

A line without indent is an event at a time in milliseconds. The indented lines below it are its
results, with their time if it differs. Possible events:

    config delay=3000 size=2                  the node's settings, at the top
    client b static=i1 knows=range,sticky topics=t,u session=10000 rebalance=30000
    0 a joins            0 a joins v4         v4: gets its id first; v9: may skip the assignment
    0 a syncs            0 a syncs a=x b=y    the leader's assignment, by the clients' names
    0 a heartbeats       0 a leaves           0 a commits 5
    0 a starts anew                           forgets its member id and generation
    0 disk holds         0 disk stores        0 disk fails        0 disk works
    0 broker restarts                         only the log is left
    0 time passes

A client needs a line of its own only if it differs from the usual one. With MILLRACE_BLESS=1 the
scripts are written again with the current results. Read the difference as you would read prose.
"""

from pathlib import Path

import pytest

from broker.coordinators.group_records import decode_group_value
from broker.coordinators.group_terms import JoinAnswer, StoreGroup
from protocol.errors import ErrorCode
from tests.harness.plays import INDENT, hold_to_script
from tests.unit.broker.group_scene import Asked, Client, Scene, subscription

SCRIPTS = sorted((Path(__file__).parents[3] / "scripts").glob("*.txt"))


class Player:
    """Plays a script and writes down the effects of each line."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {}
        """The name in the script of each member id."""
        self.waiting: list[tuple[str, Asked]] = []

    def play(self, line: str) -> list[str]:
        """Execute a line. Return the lines with its effects."""
        words = line.split()
        if words[0] == "config":
            known = dict(word.split("=") for word in words[1:])
            self.scene = Scene(
                delay_ms=int(known.get("delay", 0)), size_max=int(known.get("size", 100))
            )
            return []
        if words[0] == "client":
            self.clients[words[1]] = self._client(words[1], words[2:])
            return []
        time_ms, who, verb, *rest = int(words[0]), *words[1:]
        before = len(self.scene.events)
        self.scene.pass_to(time_ms)
        said = self._do(who, verb, rest)
        told = [
            (at_ms, text)
            for at_ms, event in self.scene.events[before:]
            for text in self._tell(event)
        ]
        told += [(time_ms, said)] if said else []
        return [INDENT + (text if at_ms == time_ms else f"{at_ms} {text}") for at_ms, text in told]

    def _client(self, name: str, words: list[str]) -> Client:
        """Return the client of this name, with its earlier member id and generation if it has
        any."""
        known = dict(word.split("=") for word in words)
        before = self.clients.get(name, Client(name))
        return Client(
            name,
            known.get("static"),
            tuple(known.get("knows", "range").split(",")),
            subscription(*known.get("topics", "t").split(",")),
            int(known.get("session", 10_000)),
            int(known.get("rebalance", 30_000)),
            member_id=before.member_id,
            generation=before.generation,
        )

    def _do(self, who: str, verb: str, rest: list[str]) -> str:
        scene = self.scene
        if who == "disk":
            if verb in ("holds", "works"):
                scene.is_held = verb == "holds"
            elif not scene.held:
                return "log: nothing is waiting"
            else:
                failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
                scene.let_store(failed if verb == "fails" else ErrorCode.NONE)
            return ""
        if who == "broker":
            scene.restart()
            return f"group: {scene.shard.state('g')}"
        if who == "time":
            return ""
        client = self.clients.setdefault(who, Client(who))
        if verb == "joins":
            version = rest[0] if rest else ""
            asked = scene.join(client, needs_id=bool(version), may_skip=version == "v9")
            return "" if asked.reply else f"{who}: waits"
        if verb == "syncs":
            shares = dict(word.split("=") for word in rest)
            assignments = {
                self.clients[name].member_id: share.encode() for name, share in shares.items()
            }
            return "" if scene.sync(client, assignments).reply else f"{who}: waits"
        if verb == "starts":
            client.member_id, client.generation = "", -1
            return ""
        if verb == "commits":
            return f"{who}: {scene.commit(client, int(rest[0])).name}"
        code = scene.heartbeat(client) if verb == "heartbeats" else scene.leave(client)
        return f"{who}: {code.name}"

    def _name(self, member_id: str) -> str:
        if member_id not in self.names:
            client = member_id[: -len("-00000000-0000-0000-0000-000000000000")]
            count = sum(name.startswith(client) for name in self.names.values())
            self.names[member_id] = f"{client}-{count + 1}"
        return self.names[member_id]

    def _tell(self, event: Asked | StoreGroup) -> list[str]:
        if isinstance(event, StoreGroup):
            assert event.record.value is not None
            value = decode_group_value(event.record.value)
            if not value.members:
                return [f"log: generation {value.generation} is empty"]
            shares = " ".join(
                f"{self._name(one.member_id)}={one.assignment.decode()}" for one in value.members
            )
            return [f"log: generation {value.generation} {shares}"]
        reply, who = event.reply, event.client.name
        assert reply is not None
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            assert isinstance(reply, JoinAnswer)
            return [f"{who}: MEMBER_ID_REQUIRED, is {self._name(reply.member_id)}"]
        if reply.error is not ErrorCode.NONE:
            return [f"{who}: {reply.error.name}"]
        if not isinstance(reply, JoinAnswer):
            return [f"{who}: is given '{reply.assignment.decode()}'"]
        text = f"{who}: {self._name(reply.member_id)} in generation {reply.generation_id}"
        text += f" by {reply.protocol_name}"
        if reply.members:
            text += ", leads " + " ".join(self._name(one.member_id) for one in reply.members)
        elif reply.leader_id:
            text += f", follows {self._name(reply.leader_id)}"
        return [text + (", as it was" if reply.skip_assignment else "")]


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_a_script_goes_as_it_is_written(script: Path) -> None:
    hold_to_script(script, Player())


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 7
