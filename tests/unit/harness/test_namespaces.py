"""A cut between two network namespaces drops packets in one direction until it is healed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.namespaces import Namespaces, can_be_made
from tests.house import tree

PORT = 5_000
LISTENING = f"""
import socket
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.bind(("0.0.0.0", {PORT}))
print("listens", flush=True)
while True:
    print(made.recv(99).decode(), flush=True)
"""
SAYING = f"""
import socket, sys
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.sendto(sys.argv[2].encode(), (sys.argv[1], {PORT}))
"""


def play() -> None:
    """Run in a new network namespace. Print which packets of two hosts arrive, in order."""
    with Namespaces((1, 2)) as spaces:
        ears = {
            node_id: subprocess.Popen(
                [*spaces.command(node_id), sys.executable, "-c", LISTENING],
                stdout=subprocess.PIPE, text=True,
            )
            for node_id in (1, 2)
        }  # fmt: skip

        def heard(node_id: int) -> str:
            stdout = ears[node_id].stdout
            assert stdout is not None
            return stdout.readline().strip()

        def say(source: int, target: int, text: str) -> None:
            words = (sys.executable, "-c", SAYING, spaces.host_of(target), text)
            subprocess.run([*spaces.command(source), *words], check=True, timeout=10)

        assert [heard(1), heard(2)] == ["listens", "listens"]
        say(1, 2, "before")
        spaces.cut(1, 2)
        say(1, 2, "lost")
        say(2, 1, "the other way")
        spaces.heal()
        say(1, 2, "after")
        assert [heard(2), heard(2), heard(1)] == ["before", "after", "the other way"]
        for one in ears.values():
            one.kill()
            one.wait()


def test_a_cut_loses_what_one_says_and_not_what_it_hears() -> None:
    if not can_be_made():
        pytest.skip("network namespaces need root")
    program = "from tests.unit.harness import test_namespaces; test_namespaces.play()"
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", program],
        cwd=tree.ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
