"""Our consumers and batches whose contents the broker did not check. The consumers read them, or
skip invalid ones on request."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import zstandard

from appliance.kafka_tools.__main__ import main
from protocol.wire.records import (
    HEADER_BYTES,
    Codec,
    NewRecord,
    build_batch,
    read_header,
    with_records,
)
from tests.harness import ROOT
from tests.harness.broker import BrokerProcess
from tests.harness.wire import WireClient, create, produce, produce_request

pytestmark = pytest.mark.live


def send(client: WireClient, topic: str, payload: bytes, codec: Codec, value: bytes = b"v") -> None:
    """Write a batch that claims one record, with this payload and a valid checksum."""
    header = read_header(build_batch([NewRecord(b"k", value, 1_700_000_000_000)]))
    batch = with_records(header._replace(attributes=codec), payload)
    answer = client.ask(produce_request(topic, batch), 9)
    one = answer.responses[0].partition_responses[0]
    assert one.error_code == 0, one


def consume(broker: BrokerProcess, topic: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "appliance", "consume", topic, "-b", broker.bootstrap]
    return subprocess.run(
        [*command, "-o", "start", "-e", *options],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_batch_that_cannot_be_opened_is_skipped_on_request(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, "broken")
        produce(client, "broken", b"first")
        send(client, "broken", b"this is no gzip", Codec.GZIP)
        send(client, "broken", b"no lz4 either", Codec.LZ4)
        produce(client, "broken", b"last")
    read = ["console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", "broken"]
    read += ["--from-beginning", "--max-messages", "2"]
    assert main(read) == 1
    told = capfd.readouterr()
    assert told.out == "first\n"
    assert "broken-0 at offset 1: gzip" in told.err
    assert main([*read, "--skip-message-on-error"]) == 0
    told = capfd.readouterr()
    assert told.out == "first\nlast\n"
    for offset in (1, 2):
        assert f"broken-0 at offset {offset}: " in told.err
    assert told.err.count("; skipped") == 2

    stopped = consume(broker, "broken")
    assert (stopped.returncode, stopped.stdout) == (1, "first\n")
    skipped = consume(broker, "broken", "--skip-message-on-error")
    assert (skipped.returncode, skipped.stdout) == (0, "first\nlast\n")
    assert skipped.stderr.count("; skipped") == 2


def test_a_group_commits_behind_what_it_skipped(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, "grouped")
        send(client, "grouped", b"this is no gzip", Codec.GZIP)
        produce(client, "grouped", b"last")
    read = ["console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", "grouped"]
    read += ["--group", "skipper", "--from-beginning", "--skip-message-on-error"]
    assert main([*read, "--max-messages", "1"]) == 0
    assert capfd.readouterr().out == "last\n"
    assert main([*read, "--timeout-ms", "4000"]) == 0
    told = capfd.readouterr()
    assert (told.out, told.err.count("skipped")) == ("", 0)


@pytest.mark.parametrize(
    "settings",
    [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}, {}],
    ids=["compact", "gzip", "producer"],
)
def test_zstd_of_levels_20_to_22_is_taken_and_read(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    topic = "zstd-" + "".join(settings.values())
    with WireClient(broker.bootstrap) as client:
        create(client, topic, **settings)
        for log in (23, 25, 27):
            value = b"v%d" % log
            plain = build_batch([NewRecord(b"k%d" % log, value, 1_700_000_000_000)])
            parameters = zstandard.ZstdCompressionParameters(window_log=log)
            stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
            payload = stream.compress(bytes(plain[HEADER_BYTES:])) + stream.flush()
            send(client, topic, payload, Codec.ZSTD, value)
    assert consume(broker, topic).stdout.split() == ["v23", "v25", "v27"]
    read = ["console-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic]
    assert main([*read, "--from-beginning", "--max-messages", "3"]) == 0
    assert capfd.readouterr().out.split() == ["v23", "v25", "v27"]


def test_a_topics_level_is_taken_and_changed_while_it_runs(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, "levels", compression_type="zstd", compression_zstd_level="19")
        produce(client, "levels", b"one")
    alter = ["configs", "--bootstrap-server", broker.bootstrap, "--alter"]
    own = [*alter, "--topic", "levels", "--add-config"]
    assert main([*own, "compression.zstd.level=-5"]) == 0
    assert main([*own, "compression.zstd.level=23"]) != 0
    assert "from -131072 to 22" in "".join(capfd.readouterr())
    for_all = [*alter, "--broker-defaults", "--add-config", "compression.lz4.level=12"]
    assert main(for_all) == 0, capfd.readouterr()
    with WireClient(broker.bootstrap) as client:
        produce(client, "levels", b"two")
    assert consume(broker, "levels").stdout.split() == ["one", "two"]
