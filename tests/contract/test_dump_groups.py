"""Apache Kafka's own dump tool decodes our records of groups: commits, generations and
tombstones."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.coordinators.placing import shard_of
from protocol.messages.group import DeleteGroupsRequest
from tests.contract.test_dump_tool import complaints, dump
from tests.harness.broker import BrokerProcess
from tests.interop.group_plays import TOPIC, Stage, prepare, settle

pytestmark = [pytest.mark.slow, pytest.mark.live]

GROUP = "dumped"


def test_kafkas_decoder_reads_our_groups(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"group.initial.rebalance.delay.ms": 0}) as broker:
        prepare(broker.bootstrap, GROUP)
        stage = Stage(broker.bootstrap, GROUP)
        a, b = stage.player("a", "i1"), stage.player("b")
        settle(stage, b, a)
        b.commit(5, note="a note")
        for player in (b, a):
            player.leave()
        stage.client.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
        stage.close()
        broker.stop()
        folder = broker.log_dir / f"__consumer_offsets-{shard_of(GROUP, 6)}"
    printed = dump("--files", str(folder / f"{0:020}.log"), "--offsets-decoder")
    assert not complaints(printed), printed
    for expected in (
        f'"group":"{GROUP}"', f'"topic":"{TOPIC}"', '"metadata":"a note"', '"generation":',
        '"groupInstanceId":"i1"', '"protocolType":"consumer"', '"clientHost":"/127.0.0.1"',
        "payload: <DELETE>",
    ):  # fmt: skip
        assert expected in printed, printed
