"""Brokers that the tests of a module share, and clients of them.

The fixture `no_complaints` fails a test when an unmodified client logs a warning, which shows a
broker defect. A module enables it with `pytest.mark.usefixtures("no_complaints")`. A test that
causes warnings on purpose, for example by killing the broker or fencing a member, lists patterns of
these warnings:
`@pytest.mark.provokes("pattern", ...)`.
"""

import gc
import logging
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from appliance.config.replication import replication_settings
from sinks.config import SinksSettings
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority, new_test_authority
from tests.harness.cluster import ClusterProcesses
from tests.harness.collector import Read, TopicReader
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.tools import warnings_of
from tests.harness.wire import WireClient

LIBRDKAFKA = re.compile(r"^%[0-9]\|.*", re.MULTILINE)
"""A line that librdkafka prints to the standard error, past Python's logging."""

ITS_OWN = r"\|BGQUEUE\|"
"""Warnings about librdkafka itself: an admin client that closes has unread results."""

LATE = (
    r"not found in cluster metadata|Group Coordinator Request failed: \[Error 15\]"
    r"|retrying. Error: <class .*UnknownTopicOrPartitionError|Marking the coordinator dead"
)
"""Warnings that brokers cause because they learn of a new topic with a delay, for example of the
offsets topic. The Python clients log them with Kafka too, and retry."""


RunMain = Callable[..., str]
"""The fixture `run_main`."""


@pytest.fixture
def no_complaints(
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[None]:
    """Fail if a client logs a warning that matches none of the test's `provokes` patterns."""
    provoked = [ITS_OWN]
    if "servers" in request.fixturenames and request.getfixturevalue("servers").size > 1:
        provoked.append(LATE)
    provoked += [one for mark in request.node.iter_markers("provokes") for one in mark.args]
    # A client object in a reference cycle lives on after its test, and logs that its broker is
    # gone. Delete such clients before the test and after it, so that only this test's are counted.
    gc.collect()
    capfd.readouterr()
    with caplog.at_level(logging.WARNING):
        yield
    gc.collect()
    printed, errors = capfd.readouterr()
    # Write the captured output again, so that pytest can show it in the report of a failure.
    sys.stdout.write(printed)
    sys.stderr.write(errors)
    said = LIBRDKAFKA.findall(printed + "\n" + errors)
    for phase in ("setup", "call"):
        said += [
            f"{one.name} {one.levelname} {one.getMessage()}"
            for one in caplog.get_records(phase)
            if one.levelno >= logging.WARNING
        ]
    assert [one for one in said if not any(re.search(each, one) for each in provoked)] == []


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Return a broker for all tests of a module. A module can set `SETTINGS` to add broker
    settings."""
    settings = getattr(request.module, "SETTINGS", {})
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    """Return a connection to the module's broker."""
    with WireClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def run_main(capsys: pytest.CaptureFixture[str]) -> RunMain:
    """Return a function that runs the `main` of a command in this process, with an expected exit
    code. It returns what the command prints."""

    def run(main: Callable[[list[str]], int], *words: str, code: int = 0) -> str:
        assert main([*words]) == code, capsys.readouterr()
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run


@pytest.fixture
def read(broker: BrokerProcess) -> Iterator[Read]:
    """Return a function that starts to read a topic. The readers are closed after the test."""
    readers: list[TopicReader] = []

    def begin(topic: str, *partitions: int) -> TopicReader:
        readers.append(TopicReader(broker.bootstrap, topic, partitions or (0, 1, 2)))
        return readers[-1]

    yield begin
    for reader in readers:
        reader.close()


@pytest.fixture
def settings(mysql_server: MySqlServer, redis_server: RedisServer) -> SinksSettings:
    """Return settings of both sinks: a new database, and an empty Redis."""
    return SinksSettings(mysql=mysql_server.new_database(), redis=redis_server.settings)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    """Return a CA for this module's brokers with TLS."""
    return new_test_authority(tmp_path_factory.mktemp("tls"))


ONE = pytest.param(1, id="one")
THREE = pytest.param(3, id="three", marks=pytest.mark.slow)
"""The short form leaves this out, because `test_three_brokers_clients` tests three brokers
there."""


@pytest.fixture(scope="module", params=[ONE, THREE])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    """Run the tests with one broker, and then with three that replicate as in a mill. No client
    may notice a difference.

    A module can set `SETTINGS` to add broker settings.
    """
    settings = replication_settings(request.param) | getattr(request.module, "SETTINGS", {})
    with ClusterProcesses(tmp_path_factory.mktemp("servers"), settings, request.param) as servers:
        yield servers
        assert warnings_of(servers.log_text()) == []
