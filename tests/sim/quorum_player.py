"""Plays `tests/scripts/quorum/*.txt`: events at replicas of the metadata log, and their effects.

A line without indent is an event, with its time in milliseconds. The indented lines below it are
all its effects. An effect at a later time has its own time. These are the events:

    cluster 3 observers=1           voters 1 to 3 and an observer 4; the first line of a script
    log 1 = 1 1 2 in 3              1's disk: a batch of each of these epochs; the vote file has 3
    0 1 starts                      or, for several replicas, 0 1 2 3 start
    0 2 hears 1                     the oldest message from 1 to 2 arrives; `hears 1 x3`: three
    0 2 loses 1                     that message is lost; 1 notices this only by its timeout
    0 1 saves                       1's disk completes all operations; `saves 1`: the oldest one
    0 1 2 3 settle                  all messages and operations among these, shown in brief
    0 1 proposes a b                0 1 resigns
    0 1 adds 4                      0 1 removes 2: a change of the voters is ordered at 1
    0 1 crashes                     incomplete disk operations are lost, and 1's links are closed
    0 1 is wiped                    1 has an empty disk with another directory id
    0 1 is copied                   1's disk is copied; the copy stays as it is
    0 1 moves                       the copy takes the place of the disk of 1, which is down
    0 2 finds 1 dead                a probe of 2 reports that 1 is dead
    0 1 snapshots                   of all committed batches, which leave the log
    0 1 runs full                   1's disk rejects writes; `has room` ends this
    0 1 holds                       show 1's log as offset:epoch:values
    0 time passes

With MILLRACE_BLESS=1 the scripts are rewritten with the current effects. Read the diff before you
commit it.
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
    """Randomness with which a crash loses every operation that is not complete."""

    def random(self) -> float:
        return 0.99


class QuorumPlayer:
    """Plays one script and writes down the effects of each line."""

    def __init__(self) -> None:
        self.stage = Stage(3)

    def play(self, line: str) -> list[str]:
        """Execute one line of a script. Return the lines that describe its effects."""
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
                stage.disks[actor.key] = [actor.disk]
            case "is", ["copied"]:
                actor.old_copy = actor.disk.copied()
            case "moves", _:
                actor.move_with_copy()
                stage.disks[actor.key].append(actor.disk)
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
