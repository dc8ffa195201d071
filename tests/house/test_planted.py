"""Every law finds a fault that is planted in a made-up file, and finds nothing in a sound file."""

from collections.abc import Callable, Iterator

import pytest

from tests.house import circles, cores, laws, named, unused
from tests.house.tree import Module, module

Law = Callable[[Module], Iterator[str]]

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * laws.FUNCTION_LINES_MAX
LONG_BY_INNER = "def f():\n" + 10 * ("    def g():\n" + "        x = 1\n" * 20)
LONG_FILE = "x = 1\n" * (laws.FILE_LINES_ADVISED + 1)
LONG_TEST_FILE = "x = 1\n" * (laws.TEST_FILE_LINES_MAX + 1)

PLANTED: list[tuple[Law, str, str]] = [
    (laws.floors_of_rooms, "protocol/wire/frame.py", "import broker.config"),
    (laws.floors_of_rooms, "sinks/rows.py", "from protocol.types import NodeId"),
    (laws.floors_of_rooms, "collector/agent.py", "def f():\n    from sinks import rows"),
    (laws.floors_of_rooms, "stream/job.py", "import collector"),
    (laws.floors_of_rooms, "monitor/http.py", "from appliance.config import load"),
    (laws.floors_of_rooms, "monitor/load.py", "from tests.harness import wait"),
    (laws.floors_of_rooms, "setup/test_all.py", "import protocol.types"),
    (laws.floors_inside, "broker/storage/log.py", "from broker.real import listening"),
    (laws.floors_inside, "broker/storage/log.py", "from ..controller import topics"),
    (laws.floors_inside, "broker/controller/topics.py", "import broker.coordinators.offsets"),
    (laws.floors_inside, "collector/text/lines.py", "from collector.identity import files"),
    (laws.floors_inside, "collector/send/outbox.py", "from collector.read.turn import Turn"),
    (laws.floors_inside, "collector/read/reader.py", "from collector.agent import Agent"),
    (laws.floors_inside, "broker/config.py", "from broker.storage.log import Log"),
    (laws.floors_inside, "protocol/wire/records.py", "from protocol.messages.api import ApiKey"),
    (laws.floors_inside, "protocol/messages/fetch.py", "from protocol import client"),
    (laws.floors_inside, "monitor/lag/rules.py", "from monitor.state.reading import Commit"),
    (laws.floors_inside, "monitor/views/render.py", "from monitor.site import plots"),
    (laws.floors_inside, "monitor/alerts/kinds.py", "from monitor.asking.poller import Poller"),
    (laws.floors_inside, "monitor/site/site.py", "from monitor.http import create_app"),
    (laws.floors_inside, "appliance/kafka/topics.py", "from appliance.cli import context"),
    (laws.floors_inside, "appliance/mill/home.py", "from appliance.launch.servers import run"),
    (laws.floors_inside, "appliance/supervisor/core.py", "from appliance.operate import starting"),
    (laws.floors_inside, "appliance/output.py", "from appliance.machine import files"),
    (laws.known_floors, "appliance/attic/old.py", "x = 1"),
    (laws.known_floors, "appliance/helpers.py", "x = 1"),
    (laws.known_floors, "monitor/attic/old.py", "x = 1"),
    (laws.known_floors, "broker/attic/old.py", "x = 1"),
    (laws.known_floors, "collector/attic/old.py", "x = 1"),
    (laws.known_floors, "broker/helpers.py", "x = 1"),
    (laws.light_broker, "broker/config.py", "from pydantic import BaseModel"),
    (laws.light_broker, "protocol/wire/records.py", "def f():\n    import numpy as np"),
    (laws.floors_inside, "broker/sessions/session.py", "from broker.produce import short"),
    (laws.floors_inside, "broker/shards/groups.py", "from broker.node.parts import Parts"),
    (laws.real_world, "broker/storage/log.py", "import asyncio"),
    (laws.real_world, "broker/node/broker.py", "from time import perf_counter_ns"),
    (laws.real_world, "broker/replicas/flusher.py", "import threading"),
    (laws.real_world, "broker/shards/groups.py", "import os\nx = Random(os.urandom(32))"),
    (laws.pure_cores, "broker/coordinators/offsets.py", "import time"),
    (laws.pure_cores, "broker/controller/topics.py", "x = uuid.uuid4()"),
    (laws.pure_cores, "collector/text/tailer.py", "def f(p):\n    return open(p)"),
    (laws.pure_cores, "monitor/lag/rules.py", "async def f():\n    await g()"),
    (laws.pure_cores, "appliance/supervisor/core.py", "import random\nx = random.random()"),
    (laws.pure_cores, "sinks/cells/merge.py", "import logging"),
    (laws.order_of_sets, "broker/shards/groups.py", "for one in {1, 2}:\n    f(one)"),
    (laws.order_of_sets, "broker/shards/groups.py", "x = list(a.keys() - b)"),
    (
        laws.order_of_sets,
        "broker/node/broker.py",
        "def f(x: set[int]):\n    return [g(y) for y in x]",
    ),
    (laws.order_of_sets, "broker/node/broker.py", "def f():\n    x = set()\n    h(*x)"),
    (laws.order_of_sets, "collector/text/tailer.py", "x: set[int]\nfor one in x:\n    f(one)"),
    (
        laws.order_of_sets,
        "broker/replicas/flusher.py",
        "class A:\n    def __init__(self):\n        self.x: set[int] = set()\n"
        "    def f(self):\n        for one in self.x:\n            one.g()",
    ),
    (laws.sockets, "protocol/client/producer.py", "import socket"),
    (laws.sockets, "protocol/client/admin.py", "asyncio.open_connection('h', 1)"),
    (laws.sizes, "collector/agent.py", LONG_FUNCTION),
    (laws.sizes, "collector/agent.py", LONG_FILE),
    (laws.sizes, "tests/unit/test_x.py", LONG_TEST_FILE),
    (laws.module_docstring, "sinks/plan.py", "x = 1"),
    (laws.broad_except, "sinks/store.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (laws.broad_except, "sinks/store.py", "try:\n    f()\nexcept:\n    pass"),
    (laws.broad_except, "sinks/store.py", "try:\n    f()\nexcept (OSError, Exception):\n    g()"),
    (laws.broad_except, "sinks/store.py", "try:\n    f()\nexcept BaseException as e:\n    g(e)"),
    (laws.broad_except, "tests/unit/test_x.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (laws.broad_except, "tests/x.py", "try:\n    f()\nexcept Exception as e:\n    g()"),
    (laws.excuses, "sinks/store.py", "x = f()  # type: ignore"),
    (laws.excuses, "sinks/store.py", "x = f()  # type: ignore[arg-type]"),
    (laws.excuses, "sinks/store.py", "x = f()  # noqa"),
    (laws.tests_do_not_sleep, "tests/e2e/test_up.py", "import time\ntime.sleep(1)"),
    (laws.tests_do_not_sleep, "tests/e2e/test_up.py", "from time import sleep\nsleep(1)"),
    (laws.tests_assert, "tests/unit/test_x.py", "def test_x():\n    f()"),
]

KEPT: list[tuple[Law, str, str]] = [
    (laws.floors_of_rooms, "stream/job.py", "from sinks.store import Sinks\nimport protocol.log"),
    (laws.floors_of_rooms, "appliance/cli.py", "import monitor.config.settings, broker.config"),
    (laws.floors_inside, "broker/node/broker.py", "from broker.storage.log import Log"),
    (laws.floors_inside, "broker/storage/log.py", "from broker.storage import segment"),
    (laws.floors_inside, "broker/__main__.py", "from broker.node import broker"),
    (laws.floors_inside, "appliance/__main__.py", "from appliance.cli import app"),
    (laws.floors_inside, "appliance/cli/doctor.py", "from appliance.checks import startup"),
    (laws.known_floors, "broker/storage/log.py", "x = 1"),
    (laws.light_broker, "collector/text/encode.py", "import numpy"),
    (laws.real_world, "broker/real/listening.py", "import asyncio, threading, time"),
    (laws.pure_cores, "collector/agent.py", "import asyncio, time"),
    (laws.pure_cores, "broker/timers.py", "import random\ndef f(r: random.Random): pass"),
    (laws.order_of_sets, "broker/real/listening.py", "for one in {1, 2}:\n    f(one)"),
    (laws.order_of_sets, "broker/node/broker.py", "def f(x: set[int]):\n    return sorted(x)"),
    (laws.order_of_sets, "broker/node/broker.py", "x: set[int]\ny = {f(one) for one in x}"),
    (laws.order_of_sets, "broker/node/broker.py", "x: set[int]\ny = any(one > 2 for one in x)"),
    (laws.order_of_sets, "broker/node/broker.py", "x: dict[int, None]\nfor one in x:\n    f(one)"),
    (
        laws.order_of_sets,
        "broker/node/broker.py",
        "def f(x: set[int]):\n    pass\ndef g(x: list[int]):\n    for y in x:\n        h(y)",
    ),
    (laws.sockets, "protocol/client/connection.py", "import socket"),
    (laws.sizes, "collector/agent.py", "def f():\n    x = 1\n"),
    (laws.sizes, "collector/agent.py", LONG_BY_INNER),
    (laws.sizes, "tests/unit/test_x.py", LONG_FILE),
    (laws.module_docstring, "sinks/plan.py", '"""Pure."""\nx = 1'),
    (laws.module_docstring, "sinks/__init__.py", ""),
    (laws.broad_except, "sinks/store.py", "try:\n    f()\nexcept OSError:\n    pass"),
    (
        laws.broad_except,
        "sinks/store.py",
        "try:\n    f()\nexcept BaseException:\n    g()\n    raise",
    ),
    (laws.broad_except, "tests/x.py", "try:\n    f()\nexcept Exception as e:\n    g(e)"),
    (laws.broad_except, "collector/__main__.py", "try:\n    f()\nexcept Exception:\n    g()"),
    (laws.excuses, "sinks/store.py", "x = f()  # type: ignore[arg-type]  # the stub is wrong"),
    (laws.excuses, "sinks/store.py", "x = f()  # noqa: E501"),
    (laws.tests_do_not_sleep, "tests/harness/wait.py", "import time\ntime.sleep(1)"),
    (laws.tests_assert, "tests/unit/test_x.py", "def test_x():\n    assert f()"),
    (laws.tests_assert, "tests/interop/test_x.py", "from tests.interop import scenarios"),
]


@pytest.mark.parametrize(("law", "path", "text"), PLANTED)
def test_a_planted_fault_is_found(law: Law, path: str, text: str) -> None:
    assert list(law(module(path, text)))


@pytest.mark.parametrize(("law", "path", "text"), KEPT)
def test_a_file_in_order_passes(law: Law, path: str, text: str) -> None:
    assert list(law(module(path, text))) == []


def test_every_law_is_tried_both_ways() -> None:
    assert {law for law, _, _ in PLANTED} == set(laws.MODULE_LAWS)
    assert {law for law, _, _ in KEPT} == set(laws.MODULE_LAWS)


@pytest.mark.parametrize(
    ("law", "text"),
    [
        (laws.unfinished, "x = 1  # TO" + "DO later"),
        (laws.unfinished, "FIX" + "ME"),
        (laws.machine_paths, "cd /work" + "/main && make"),
        (laws.machine_paths, "path = '/home/anna/millrace'"),
        (laws.machine_paths, "/root" + "/.cache"),
        (laws.registries, "--index-url https://py" + "pi.org/simple"),
        (laws.registries, "https://repo1" + ".maven.org/maven2"),
        (laws.registries, "FROM dock" + "er.io/library/python"),
    ],
)
def test_a_planted_text_is_found(law: Callable[[str, str], Iterator[str]], text: str) -> None:
    assert list(law("docs/x.md", f"first line\n{text}\n")) != []


@pytest.mark.parametrize("law", laws.TEXT_LAWS)
def test_a_text_in_order_passes(law: Callable[[str, str], Iterator[str]]) -> None:
    text = "The framework works in /tmp or data/broker-1; see network/root nodes, mastodon.\n"
    assert list(law("docs/x.md", text)) == []


def test_unused_names_are_found() -> None:
    texts = {
        "broker/a.py": "DEAD = 1\nUSED = 2\ndef dead(): pass\n@app\ndef told(): pass",
        "broker/b.py": "from broker.a import USED\nprint(USED)\ndef shown(): pass",
    }
    planted = [module(path, text) for path, text in texts.items()]
    found = unused.unused(planted, ["{{ shown() }}"])
    assert found == ["broker/a.py: DEAD", "broker/a.py: dead"]


def test_circles_are_found_also_where_only_types_are_checked() -> None:
    texts = {
        "broker/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import broker.b",
        "broker/b.py": "from broker import c",
        "broker/c.py": "def f():\n    from broker.a import x",
        "broker/d.py": "import broker.a",
    }
    planted = [module(path, text) for path, text in texts.items()]
    assert circles.circles(planted) == [["broker.a", "broker.b", "broker.c"]]
    assert circles.circles(planted[1:]) == []


def test_cores_that_are_told_of_and_not_kept_are_found() -> None:
    """Finds a core that HOUSE.md names but that does not exist, and a core file that no law
    checks."""
    house = "… The large ones: `broker/quorum`, `collector/gone`,\n`agent`.\n\n## Then `a/b`"
    told = cores.told_by(house)
    assert told == {"broker/quorum", "collector/gone", "collector/agent"}
    paths = ["broker/quorum/leader.py", "collector/agent.py", "collector/once.py"]
    assert cores.unkept(told, paths) == (["collector/gone"], ["collector/agent.py"])


def test_files_that_a_page_names_and_that_are_gone_are_found() -> None:
    files = ["stream/fold/compile.py", "stream/java/Fold.java", "tests/unit/test_one.py"]
    page = (
        "`stream/fold/compile.py`, `fold/compile`, `stream/fold/`, `java/Fold.serveHere`, `a/b`\n"
        "`stream/folding.py` `fold/halving` `tests/unit/test_one.py`, `java/Judge.take`"
    )
    assert list(named.gone({"docs/a.md": page}, files)) == [
        "docs/a.md:2: stream/folding.py",
        "docs/a.md:2: fold/halving",
        "docs/a.md:2: java/Judge.take",
    ]
