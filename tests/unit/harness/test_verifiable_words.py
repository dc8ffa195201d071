"""A verification client with a blocking library ends as soon as any of its threads fails."""

import subprocess
import sys

from tests.harness import ROOT

DEADLINE_S = 30.0

PROGRAM = """
from tests.harness.verifiable import words

def produce(bootstrap, topic):
    raise BrokenPipeError("the tool has ended")

def consume(bootstrap, topic):
    words.READS_NO_MORE.wait()

words.in_threads((produce,), consume)
"""


def test_a_writer_that_fails_ends_the_client_whose_reader_would_go_on() -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "nowhere:1", "topic"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        # `communicate` would close the client's input, which ends the reading.
        assert client.wait(DEADLINE_S) == 1
        assert client.stdout is not None
        assert "BrokenPipeError: the tool has ended" in client.stdout.read()
    finally:
        client.kill()
        client.communicate()
