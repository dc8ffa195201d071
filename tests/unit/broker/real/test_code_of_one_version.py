"""A broker loads all of its own code before it serves, so an upgrade of the files does not change
it."""

import ast
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from appliance.mill.home import CODE
from broker.real.process import EXIT_FAILED
from protocol.messages.api import BETWEEN_BROKERS, SERVED, request_class
from tests.harness.broker import BrokerProcess

RUNS = """
import json, sys
from broker.real.process import main
code = main(0)
print(json.dumps([code, {name: one.__file__ for name, one in sys.modules.items()
                         if name.partition(".")[0] in ("broker", "protocol")}]))
"""


def loaded(folder: Path) -> dict[str, Path]:
    """Return the modules that a broker had loaded when it opened its listeners. One of its ports is
    in use, so the broker ends there."""
    broker = BrokerProcess(folder)
    with socket.create_server(("127.0.0.1", broker.host_port)):
        done = subprocess.run(
            [sys.executable, "-c", RUNS],
            cwd=CODE,
            input=json.dumps(broker.settings_object()),
            capture_output=True,
            text=True,
            check=True,
        )
    code, files = json.loads(done.stdout)
    assert code == EXIT_FAILED, done.stderr
    assert str(broker.host_port) in done.stderr
    return {name: source_of(Path(file)) for name, file in files.items() if file is not None}


def source_of(file: Path) -> Path:
    """Return the source of a module. A compiled file is beside its source."""
    return file if file.suffix == ".py" else file.with_name(f"{file.name.partition('.')[0]}.py")


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that code imports at run time, without those that only type checkers
    read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        yield from imports(node)


def test_trap_38_nothing_of_ours_is_loaded_after_the_listeners_open(tmp_path: Path) -> None:
    modules = loaded(tmp_path)
    assert {
        request_class(key).__module__ for key in SERVED.keys() | BETWEEN_BROKERS.keys()
    } <= modules.keys()
    later = {
        f"{name} imports {wanted}"
        for name, file in modules.items()
        for wanted in imports(ast.parse(file.read_text()))
        if wanted.partition(".")[0] in ("broker", "protocol") and wanted not in modules
    }
    assert later == set()
