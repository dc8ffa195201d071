"""The cost of an idle broker with a thousand connections and a thousand partitions.

The CPU share is measured three times: without a consumer, and twice with one consumer of all
partitions that gets no records. In one of these two measurements the consumer uses a fetch session,
as the Java consumer does. In the other it uses none, as librdkafka does.
"""

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from bench.broker_cases import Case, new_topic
from bench.librdkafka import Lost
from bench.measurement import Figures
from bench.requests import FETCH_VERSION, NEW_SESSION, NO_SESSION, fetch_request
from bench.servers import Server
from bench.session import Bench
from protocol.errors import ErrorCode
from protocol.messages.cluster import ApiVersionsRequest
from tests.harness.wire import WireClient

CONNECTIONS = 1_000
PARTITIONS = 1_000
QUIET_S = 7.0
"""The seconds to wait until the effects of the set-up are over. By then, silent connections have
given back their read buffers."""


def idle(bench: Bench) -> Case:
    """Return the case that measures an idle broker's memory and its CPU time in percent of a
    core."""
    seconds = bench.options.sized(8, 2)

    def measure(server: Server, settings: Mapping[str, str]) -> Figures:
        with new_topic(server, settings, PARTITIONS) as topic, _connections(server):
            time.sleep(QUIET_S)
            figures = {"idle_cpu_percent": _waited(server, seconds)}
            figures["pss_mib"] = server.pss_mib
            with WireClient(server.bootstrap, "bench") as consumer:
                figures["session_cpu_percent"] = _session(server, topic, consumer, seconds)
            with WireClient(server.bootstrap, "bench") as consumer:
                figures["no_session_cpu_percent"] = _full_fetches(server, topic, consumer, seconds)
        return figures

    return measure


@contextmanager
def _connections(server: Server) -> Iterator[None]:
    """Open connections that each send one ApiVersions request and are silent afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 200
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(WireClient(server.bootstrap, "bench"))
            client.ask(ApiVersionsRequest(), 0)
        yield


def _waited(server: Server, seconds: float) -> float:
    before_s, began_s = server.cpu_s, time.perf_counter()
    time.sleep(seconds)
    return _percent(server, before_s, began_s)


def _percent(server: Server, before_s: float, began_s: float) -> float:
    return (server.cpu_s - before_s) / (time.perf_counter() - began_s) * 100


def _session(server: Server, topic: str, consumer: WireClient, seconds: float) -> float:
    """Return the CPU time in percent of a core while a consumer fetches in a fetch session.

    The first Fetch names all partitions. The later ones name none, which means that the list of
    partitions is unchanged.
    """
    everything = dict.fromkeys(range(PARTITIONS), 0)
    answer = consumer.ask(
        fetch_request(topic, everything, session_epoch=NEW_SESSION), FETCH_VERSION
    )
    if answer.error_code or not answer.session_id:
        raise Lost(f"the broker created no fetch session: error {answer.error_code}")
    before_s, began_s, session_epoch = server.cpu_s, time.perf_counter(), 0
    while time.perf_counter() - began_s < seconds:
        session_epoch += 1
        request = fetch_request(
            topic, {}, session_id=answer.session_id, session_epoch=session_epoch
        )
        code = consumer.ask(request, FETCH_VERSION).error_code
        if code:
            raise Lost(f"the broker refused a Fetch in the fetch session: {ErrorCode(code).name}")
    return _percent(server, before_s, began_s)


def _full_fetches(server: Server, topic: str, consumer: WireClient, seconds: float) -> float:
    everything = fetch_request(topic, dict.fromkeys(range(PARTITIONS), 0), session_epoch=NO_SESSION)
    before_s, began_s = server.cpu_s, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        consumer.ask(everything, FETCH_VERSION)
    return _percent(server, before_s, began_s)
