"""Plays `tests/scripts/quorum/*.txt`: what replicas of the metadata log do, line by line.

A line without indent is something that happens, at a time in milliseconds; the indented lines under
it are everything that comes of it, with their time where it is another. What can happen:

    cluster 3 observers=1           voters 1 to 3 and an observer 4, at the top
    log 1 = 1 1 2 in 3              1's disk: a batch for each epoch, and the vote file's
    0 1 starts                      0 1 2 3 start
    0 2 hears 1                     1's oldest message to 2 arrives; `hears 1 x3`: three
    0 2 loses 1                     it is lost, which 1 learns by its time-out only
    0 1 saves                       its disk does all that is waiting; `saves 1`: the oldest only
    0 1 2 3 settle                  all messages and disks among these, told in brief
    0 1 proposes a b                0 1 resigns
    0 1 adds 4                      0 1 removes 2: the leader is asked to change the voters
    0 1 crashes                     what its disk has not done is lost, its links are closed
    0 1 is wiped                    it starts on an empty disk
    0 2 finds 1 dead                a probe's verdict
    0 1 snapshots                   what is committed, and nothing below is kept in the log
    0 1 runs full                   its disk takes nothing; `has room`
    0 1 holds                       its log, as (offset epoch value) would be read
    0 time passes

With MILLRACE_BLESS=1 the scripts are written again with the results of today; read the difference
as you would read prose.
"""

from __future__ import annotations

from random import Random

from broker.quorum.events import AddVoter, ChangeVoters, RemoveVoter, Resign, VoterChange
from broker.quorum.voters import Voter
from protocol.wire.records import read_header
from tests.harness.plays import INDENT
from tests.sim.quorum_node import image_of
from tests.sim.quorum_stage import Stage


def change_of(change: VoterChange) -> ChangeVoters:
    return ChangeVoters(1, change, 60_000)


class KeepNothing(Random):
    """A crash in a script loses everything that was not completed."""

    def random(self) -> float:
        return 0.99


class QuorumPlayer:
    """Plays one script and writes down the effects of each line."""

    def __init__(self) -> None:
        self.stage = Stage(3)

    def play(self, line: str) -> list[str]:
        """Execute a line. Return the lines with its effects."""
        words = line.split()
        if words[0] == "cluster":
            observers = [int(word.removeprefix("observers=")) for word in words[2:]]
            self.stage = Stage(int(words[1]), sum(observers))
            return []
        if words[0] == "log":
            epochs = [int(word) for word in words[3 : words.index("in")]]
            self.stage.preset(int(words[1]), epochs, int(words[-1]))
            return []
        stage = self.stage
        before = len(stage.told)
        time_ms = int(words[0])
        stage.run_until(time_ms)
        ids = []
        while words[1].isdigit():
            ids.append(int(words.pop(1)))
        said = self._do(ids, words[1], words[2:])
        told = stage.told[before:] + [(time_ms, text) for text in said]
        return [INDENT + (text if at_ms == time_ms else f"{at_ms} {text}") for at_ms, text in told]

    def _do(self, ids: list[int], verb: str, rest: list[str]) -> list[str]:
        stage = self.stage
        if verb == "time":
            return []
        if verb in ("start", "starts"):
            for node_id in ids:
                stage.roles.pop(node_id, None)
                stage.nodes[node_id].start()
            return []
        if verb == "settle":
            stage.settle(ids)
            return []
        (me,) = ids
        if verb in ("hears", "loses"):
            return self._mail(me, verb, rest)
        actor = stage.actor(me)
        match verb, rest:
            case "saves", _:
                actor.do_duties(int(rest[0]) if rest else None)
            case "proposes", _:
                actor.propose([word.encode() for word in rest])
            case "adds", [added]:
                actor.handle(change_of(AddVoter(Voter(stage.nodes[int(added)].key))))
            case "removes", [removed]:
                actor.handle(change_of(RemoveVoter(stage.nodes[int(removed)].key)))
            case "resigns", _:
                actor.handle(Resign())
            case "crashes", _:
                actor.crash(KeepNothing())
                for other in stage.nodes.values():
                    other.reset(me)
            case "is", ["wiped"]:
                actor.wipe()
                stage.disks[actor.key] = actor.disk
            case "finds", [dead, "dead"]:
                stage.is_dead(me, int(dead))
            case "snapshots", _:
                actor.take_snapshot(keep=0)
            case "runs", ["full"]:
                actor.is_full = True
            case "has", ["room"]:
                actor.is_full = False
            case "holds", _:
                return [f"{me}: {self._log(me)}"]
            case _:
                raise ValueError(f"unknown: {verb} {rest}")
        return []

    def _mail(self, me: int, verb: str, rest: list[str]) -> list[str]:
        count = int(rest[1].removeprefix("x")) if len(rest) > 1 else 1
        for _ in range(count):
            mail = self.stage.take_mail(me, int(rest[0]))
            if mail is None:
                return [f"{me}: nothing is under way from {rest[0]}"]
            if verb == "hears":
                mail.arrive()
        return []

    def _log(self, node_id: int) -> str:
        log = self.stage.nodes[node_id].disk.log
        told = [
            f"{one.base_offset}:{one.epoch}:"
            + (
                "control"
                if read_header(one.data).is_control
                else ",".join(value.decode() for value in image_of([one]))
            )
            for one in log.batches
        ]
        return f"from {log.start_offset} " + " ".join(told)
