"""A Spark master that does not answer is reported at once, with its address."""

import socket
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

from stream import job as module
from stream.job import EXIT_CRASHED, StreamJob
from stream.overseer import JvmGone
from stream.spark import masters
from stream.spark.masters import MasterAway, addresses, ask_masters
from stream.state import StreamState
from tests.harness.ports import free_port
from tests.harness.wait import wait_until
from tests.unit.stream.test_job import settings_in


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[2]", []),
        ("yarn", []),
        ("k8s://https://10.0.0.1:6443", []),
        ("spark://a:7077", [("a", 7077)]),
        ("spark://a:7077,b:7078", [("a", 7077), ("b", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
    ],
)
def test_whose_addresses_are_known(master: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(master) == expected


def test_a_master_that_refuses_is_named_with_its_address() -> None:
    first, second = free_port(), free_port()
    with pytest.raises(MasterAway) as raised:
        ask_masters(f"spark://127.0.0.1:{first},127.0.0.1:{second}")
    assert f"127.0.0.1:{first} (Connection refused), 127.0.0.1:{second}" in str(raised.value)


@pytest.mark.parametrize("master", ["spark://host", "spark://:7077", "spark://h:0", "spark://h:x"])
def test_what_is_no_address_is_said_to_be_none(master: str) -> None:
    with pytest.raises(MasterAway, match="expected host:port"):
        ask_masters(master)


def test_a_master_that_keeps_silent_is_waited_for_no_longer_than_is_said() -> None:
    with socket.socket() as full:
        # The accept queue has room for one connection. The kernel lets the next one wait.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            began_s = time.monotonic()
            with pytest.raises(MasterAway, match=r"no answer within 0\.2 s"):
                ask_masters(f"spark://127.0.0.1:{port}", 0.2)
    assert time.monotonic() - began_s < masters.REACH_TIMEOUT_S


def test_one_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ask_masters(f"spark://127.0.0.1:{free_port()},127.0.0.1:{listening.getsockname()[1]}")


def test_a_driver_waits_for_its_master_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt to start a JVM would take a minute, and a failed one ends the driver."""

    def made(*_: object, **__: object) -> NoReturn:
        raise JvmGone("as far as this is played")

    monkeypatch.setattr(module, "start_session", made)
    port = free_port()
    settings = settings_in(tmp_path)
    section = settings.section.model_copy(update={"master": f"spark://127.0.0.1:{port}"})
    settings = settings.model_copy(update={"section": section})
    state, codes = StreamState("stream", [], 100), list[int]()
    job = StreamJob(settings, state, threading.Event())
    thread = threading.Thread(target=lambda: codes.append(job.run()))
    thread.start()
    wait_until(
        lambda: [one.code for one in state.snapshot().problems] == ["spark-away"], 10, "it waits"
    )
    assert f"127.0.0.1:{port}" in state.snapshot().problems[0].text
    assert not codes
    with socket.create_server(("127.0.0.1", port)):
        thread.join(20)
    assert codes == [EXIT_CRASHED]
