"""The laws of the house. Each law is a function that takes a file and yields its violations.

This module never reads the disk. `test_laws.py` applies the laws to the tree, and `test_planted.py`
tries every law on faults planted in made-up files.
"""

import ast
import re
from collections.abc import Iterator

from tests.house import sets
from tests.house.cores import is_pure
from tests.house.tree import ROOMS, Module

FILE_LINES_ADVISED = 400
FILE_LINES_MAX = 700
LONGER_FILES = {
    "broker/coordinators/group_rebalance.py": "one state machine: the rebalance of a classic group",
    "broker/replicas/replicas.py": "one object: the partitions, and how they follow the metadata",
    "broker/sessions/session.py": "one state machine: a client's connection, from accept to close",
    "broker/storage/log_manager.py": "one order of steps: how the logs of a broker start and stop",
    "collector/identity/generation.py": "one object: what is known of one file",
    "collector/read/reader.py": "one turn of a file, from the look at it to what it gives",
    "monitor/asking/counts.py": "one view of one metric, with its formatted numbers",
}
"""Files above the advised length, each with the reason why it is not split."""

TEST_FILE_LINES_MAX = 500
"""Higher than for a product file, because each test can be read alone."""

FUNCTION_LINES_MAX = 60

MAY_IMPORT: dict[str, frozenset[str]] = {
    "protocol": frozenset(),
    "sinks": frozenset(),
    "broker": frozenset({"protocol"}),
    "collector": frozenset({"protocol"}),
    "stream": frozenset({"protocol", "sinks"}),
    "monitor": frozenset({"protocol", "sinks"}),
    "appliance": frozenset({"protocol", "broker", "collector", "sinks", "stream", "monitor"}),
    "bench": frozenset(ROOMS),
    "tests": frozenset(ROOMS),
    "setup": frozenset(),
}

# The floors of a room. A folder imports only folders of lower floors, never of its own floor.
BROKER_FLOORS = {
    "": 0,
    "storage": 1,
    "metrics": 2,
    "quotas": 2,
    "security": 2,
    "metadata": 3,
    "replication": 4,
    "quorum": 4,
    "controller": 5,
    "coordinators": 5,
    "sessions": 5,
    "replicas": 6,
    "produce": 7,
    "fetch": 7,
    "cluster": 7,
    "shards": 8,
    "handlers": 9,
    "interbroker": 9,
    "node": 10,
    "real": 11,
}
PROTOCOL_FLOORS = {"": 0, "security": 1, "wire": 1, "messages": 2, "client": 3}
# The files directly in the room have the highest floor, because they connect the folders.
COLLECTOR_FLOORS = {
    "config": 0,
    "timing": 1,
    "text": 2,
    "identity": 3,
    "read": 4,
    "send": 4,
    "": 5,
}
MONITOR_FLOORS = {
    "lag": 0,
    "state": 1,
    "config": 2,
    "login": 3,
    "views": 3,
    "alerts": 4,
    "asking": 4,
    "assembly": 4,
    "history": 5,
    "sampling": 6,
    "admin": 7,
    "api": 7,
    "site": 8,
    "": 9,
}
APPLIANCE_FLOORS = {
    "": 0,
    "config": 1,
    "dump": 1,
    "kafka": 1,
    "machine": 1,
    "kafka_tools": 2,
    "mill": 2,
    "launch": 3,
    "traffic": 3,
    "supervisor": 4,
    "checks": 5,
    "operate": 6,
    "backup": 7,
    "detect": 8,
    "enrol": 8,
    "cli": 9,
}
FLOORS = {
    "appliance": APPLIANCE_FLOORS,
    "broker": BROKER_FLOORS,
    "protocol": PROTOCOL_FLOORS,
    "collector": COLLECTOR_FLOORS,
    "monitor": MONITOR_FLOORS,
}
GROUND_MODULES = {
    "appliance": {"errors", "healthz", "interrupts", "output"},
    "broker": {
        *("world", "alarm", "budget", "timers", "purgatory"),
        "config",
        "keys_text",
        "limit_keys",
        "node_keys",
        "topic_keys",
        "settings",
    },
    "protocol": {
        "types",
        "errors",
        "units",
        "reassignment",
        "collector_report",
        "copy_progress",
        "watched_files",
        "log",
        "control",
        "descriptors",
        "own_command",
        "background",
        "settling",
        "status",
        "status_http",
    },
}

# A broker must not load these, not even through `protocol`, because they take too much memory.
HEAVY = {"pydantic", "numpy"}

IMPURE_MODULES = {
    "asyncio",
    "http",
    "logging",
    "multiprocessing",
    "secrets",
    "selectors",
    "socket",
    "subprocess",
    "threading",
    "time",
    "urllib",
}
IMPURE_CALLS = {"open", "input", "print"}

REAL_WORLD = ("broker/real/", "broker/__main__.py")
WORLDLY_MODULES = {
    "asyncio",
    "multiprocessing",
    "queue",
    "secrets",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uvloop",
}
WORLDLY_CALLS = {"os.urandom", "uuid4", "uuid.uuid4", "datetime.now", "random.SystemRandom"}

SOCKET_NAMES = {
    "create_connection",
    "create_server",
    "open_connection",
    "open_unix_connection",
    "start_server",
    "start_unix_server",
    "sock_connect",
}
SOCKET_FILES = {
    "protocol/client/connection.py": "the client's only socket file",
    "protocol/status_http.py": "every part's status server",
    "protocol/control.py": "asks the supervisor on its Unix socket",
}

BROAD_EXCEPT_FILES = {
    "broker/sessions/session.py": "a fault of one session closes that session",
    "protocol/status_http.py": "a fault of one status request must not end the part",
    "monitor/alerts/daemon_thread.py": "what the call raises, its future raises",
    "protocol/client/connection.py": "a fault of one connection fails that connection's requests",
    "stream/quarantine/bisection.py": "what a count raises is judged, or passed on",
    "stream/write_behind.py": "what the work raises is raised where it is waited for",
    "stream/threads.py": "the top of a thread: whatever ended it is said, and it is begun again",
    "sinks/tending.py": "the top of a thread: what ended a round is said, and the next is tried",
    "tests/harness/wait.py": "an exception counts as not yet",
}

SLEEPING_FILES = {
    "tests/harness/wait.py": "the one place that waits for conditions",
    "tests/harness/chaos.py": "the moment of a fault comes from the printed seed",
    "tests/crash/test_collector_crash.py": "the moment of a kill comes from the printed seed",
    "tests/interop/test_collector_live.py": "a writer keeps its own pace",
}

_UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.])/(?:root|work/|tmp/[a-z]+/|home/[a-z]+)(?=[/\w.\-])")
_REGISTRY = re.compile(
    r"\b(?:[\w-]+\.)*[\w-]*(?:pypi|pythonhosted|maven|mvnrepository|npmjs|docker|ghcr|quay"
    r"|golang|crates|debian|ubuntu|anaconda)[\w-]*\.(?:org|com|io)\b"
)
_TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<codes>\[[\w\-, ]+\])?(?P<rest>.*)")
_NOQA = re.compile(r"#\s*noqa(?!:\s*[A-Z])")


def imports(of: Module) -> Iterator[tuple[int, str]]:
    """Yield the line and absolute name of every imported module, also inside functions."""
    for node in ast.walk(of.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ".".join(of.parts[: len(of.parts) - node.level])
                base = f"{above}.{base}".strip(".")
            yield node.lineno, base
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def floors_of_rooms(of: Module) -> Iterator[str]:
    """A room imports only rooms that MAY_IMPORT lists for it."""
    for line, name in imports(of):
        target = name.split(".")[0]
        if target in ROOMS and target != of.room and target not in MAY_IMPORT[of.room]:
            yield f"{of.path}:{line}: {of.room} must not import {target}"


def floors_inside(of: Module) -> Iterator[str]:
    """In a room with floors, a file imports only from lower floors."""
    floors = FLOORS.get(of.room)
    if floors is None or of.parts[-1] == "__main__":
        return
    own = of.parts[1] if len(of.parts) > 2 else ""
    for line, name in imports(of):
        pieces = name.split(".")
        if pieces[0] != of.room or len(pieces) < 2:
            continue
        target = pieces[1] if pieces[1] in floors else ""
        if own != target and floors.get(own, 0) <= floors[target]:
            yield f"{of.path}:{line}: {name} does not lie below this file's floor"


def known_floors(of: Module) -> Iterator[str]:
    """Every folder and every ground module of a room with floors has its floor in this file."""
    floors = FLOORS.get(of.room)
    if floors is None:
        return
    ground = GROUND_MODULES.get(of.room)
    if len(of.parts) > 2:
        if of.parts[1] not in floors:
            yield f"{of.path}: the folder {of.parts[1]} has no floor in tests/house/laws.py"
    elif ground is not None and of.parts[1] not in ground | {"__init__", "__main__"}:
        yield f"{of.path}: {of.parts[1]} is no ground module of {of.room}"


def light_broker(of: Module) -> Iterator[str]:
    """Broker and protocol import no heavy package, not even inside a function."""
    if of.room not in ("broker", "protocol"):
        return
    for line, name in imports(of):
        if name.split(".")[0] in HEAVY:
            yield f"{of.path}:{line}: {name.split('.')[0]} is too large for a broker"


def real_world(of: Module) -> Iterator[str]:
    """In the broker only `real/` uses asyncio, threads, sockets, time and randomness."""
    if of.room != "broker" or of.path.startswith(REAL_WORLD):
        return
    for line, name in imports(of):
        if name.split(".")[0] in WORLDLY_MODULES:
            yield f"{of.path}:{line}: {name.split('.')[0]} belongs into broker/real"
    for node in ast.walk(of.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in WORLDLY_CALLS:
            yield f"{of.path}:{node.lineno}: chance and time come from the world"


def pure_cores(of: Module) -> Iterator[str]:
    """A core gets time and randomness as arguments and returns its outputs as data."""
    if not is_pure(of):
        return
    for line, name in imports(of):
        if name.split(".")[0] in IMPURE_MODULES:
            yield f"{of.path}:{line}: a pure core must not import {name.split('.')[0]}"
    for node in ast.walk(of.tree):
        if isinstance(node, ast.Await | ast.AsyncFunctionDef):
            yield f"{of.path}:{node.lineno}: a pure core must not await"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in IMPURE_CALLS or called in ("datetime.now", "os.urandom", "uuid.uuid4"):
            yield f"{of.path}:{node.lineno}: a pure core must not call {called}"
        if called.startswith("random.") and called != "random.Random":
            yield f"{of.path}:{node.lineno}: chance comes as an argument, not from {called}"


def order_of_sets(of: Module) -> Iterator[str]:
    """Logic never iterates over a set. The order of a set depends on the hash seed, so no seed of a
    test could repeat a run."""
    is_logic = of.room == "broker" and not of.path.startswith(REAL_WORLD)
    if is_logic or is_pure(of):
        for line, what in sets.gone_through(of.tree):
            yield f"{of.path}:{line}: the order of a set: {what}"


def sockets(of: Module) -> Iterator[str]:
    """In protocol, only the client's connection file opens sockets."""
    if of.room != "protocol" or of.path in SOCKET_FILES:
        return
    for node in ast.walk(of.tree):
        if isinstance(node, ast.Attribute) and node.attr in SOCKET_NAMES:
            yield f"{of.path}:{node.lineno}: {node.attr} belongs into protocol/client/connection.py"
    for line, name in imports(of):
        if name == "socket":
            yield f"{of.path}:{line}: sockets belong into protocol/client/connection.py"


def sizes(of: Module) -> Iterator[str]:
    """Files and functions are short enough to be read in one go."""
    lines = of.text.count("\n") + 1
    advised = FILE_LINES_MAX if of.path in LONGER_FILES else FILE_LINES_ADVISED
    lines_max = TEST_FILE_LINES_MAX if of.room == "tests" else advised
    if lines > lines_max:
        yield f"{of.path}: {lines} lines, at most {lines_max}"
    for node in ast.walk(of.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = own_lines(node)
            if length > FUNCTION_LINES_MAX:
                found = f"{node.name} has {length} lines"
                yield f"{of.path}:{node.lineno}: {found}, at most {FUNCTION_LINES_MAX}"


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of a function's lines, without the lines of its inner functions. Inner
    functions are measured separately."""

    def lines(node: ast.stmt) -> set[int]:
        return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))

    own = lines(function)
    for inner in ast.walk(function):
        if inner is not function and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            own -= lines(inner)
    return len(own)


def module_docstring(of: Module) -> Iterator[str]:
    """Every file with code starts with a docstring. Test files need none, because test names
    describe them."""
    if of.tree.body and of.room != "tests" and ast.get_docstring(of.tree) is None:
        yield f"{of.path}: no docstring at the top"


def broad_except(of: Module) -> Iterator[str]:
    """`except Exception` is allowed only at a process's top and in files that are listed with a
    reason."""
    if of.path in BROAD_EXCEPT_FILES or of.parts[-1] == "__main__":
        return
    for node in ast.walk(of.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = "" if node.type is None else ast.unparse(node.type)
        if node.type is not None and not re.search(r"\b(Base)?Exception\b", caught):
            continue
        # A handler that cleans up and re-raises the exception hides nothing.
        if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
            continue
        # A test's thread may catch any exception and keep it, so that the test can check it.
        if of.room == "tests" and node.name and _is_used(node.name, node.body):
            continue
        yield f"{of.path}:{node.lineno}: catching {caught or 'everything'} is not allowed here"


def _is_used(name: str, body: list[ast.stmt]) -> bool:
    return any(
        isinstance(inner, ast.Name) and inner.id == name
        for statement in body
        for inner in ast.walk(statement)
    )


def excuses(of: Module) -> Iterator[str]:
    """Every exemption from a tool names its code. Every exemption from type checks also has a
    reason."""
    if of.path in EXEMPT_TEXTS:
        return
    for number, line in enumerate(of.text.splitlines(), start=1):
        ignore = _TYPE_IGNORE.search(line)
        if ignore and not ignore["codes"]:
            yield f"{of.path}:{number}: type: ignore without a code"
        elif ignore and of.room != "tests" and "#" not in ignore["rest"]:
            yield f"{of.path}:{number}: type: ignore without a reason behind it"
        if _NOQA.search(line):
            yield f"{of.path}:{number}: noqa without a code"


def tests_do_not_sleep(of: Module) -> Iterator[str]:
    """Tests wait for conditions, never for a fixed time."""
    if of.room != "tests" or of.path in SLEEPING_FILES:
        return
    for node in ast.walk(of.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "time.sleep":
            yield f"{of.path}:{node.lineno}: time.sleep in a test; use tests/harness/wait.py"
    for line, name in imports(of):
        if name == "time.sleep":
            yield f"{of.path}:{line}: time.sleep in a test; use tests/harness/wait.py"


def tests_assert(of: Module) -> Iterator[str]:
    """A test file must have an assert, or must run the scenarios of another test module."""
    if of.room != "tests" or not of.parts[-1].startswith("test_"):
        return
    if any(n.startswith("tests.") and not n.startswith("tests.harness") for _, n in imports(of)):
        return
    asserting = ("pytest.raises", "pytest.fail")
    for node in ast.walk(of.tree):
        if isinstance(node, ast.Assert):
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func) in asserting:
            return
    yield f"{of.path}: no assert in it"


MODULE_LAWS = (
    floors_of_rooms,
    floors_inside,
    known_floors,
    light_broker,
    real_world,
    pure_cores,
    order_of_sets,
    sockets,
    sizes,
    module_docstring,
    broad_except,
    excuses,
    tests_do_not_sleep,
    tests_assert,
)


def unfinished(path: str, text: str) -> Iterator[str]:
    """Notes of unfinished work are forbidden, because they belong in an issue."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _UNFINISHED.search(line):
            yield f"{path}:{number}: {found[0]}"


def machine_paths(path: str, text: str) -> Iterator[str]:
    """Paths that exist only on one person's machine are forbidden."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _MACHINE_PATH.search(line):
            yield f"{path}:{number}: the path {found[0]} of one machine"


def registries(path: str, text: str) -> Iterator[str]:
    """Our files contain no addresses of package registries, because tools find them by their
    settings."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _REGISTRY.search(line):
            yield f"{path}:{number}: the registry {found[0]}"


TEXT_LAWS = (unfinished, machine_paths, registries)

EXEMPT_TEXTS = {
    "tests/house/laws.py": "names what it forbids",
    "tests/house/test_planted.py": "plants what is forbidden",
}
