"""Commands of the mill that a part runs: output, errors, and a time limit."""

import asyncio
import sys
import time

import pytest

from protocol.own_command import LINES_TOLD, CommandFailed, run_command


def run(code: str, timeout_s: float = 30.0, codes: tuple[int, ...] = (0,)) -> bytes:
    return asyncio.run(run_command((sys.executable, "-c", code), timeout_s, codes))


def test_standard_output_is_returned() -> None:
    assert run("print('found')") == b"found\n"


def test_an_exit_code_can_mean_success() -> None:
    code = "import sys; print('none'); sys.exit(3)"
    assert run(code, codes=(0, 3)) == b"none\n"
    with pytest.raises(CommandFailed, match="no reason given"):
        run(code)


def test_a_failure_quotes_the_first_lines_of_standard_error() -> None:
    with pytest.raises(CommandFailed) as caught:
        run("import sys; [print(n, file=sys.stderr) for n in range(100)]; sys.exit(2)")
    assert str(caught.value) == "; ".join(map(str, range(LINES_TOLD)))


def test_a_command_that_does_not_end_is_killed() -> None:
    started_s = time.monotonic()
    with pytest.raises(CommandFailed, match=r"no answer from .* within 0 s"):
        run("import time; time.sleep(600)", timeout_s=0.2)
    assert time.monotonic() - started_s < 60


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(CommandFailed, match="No such file"):
        asyncio.run(run_command(("/nowhere/at-all",), 1.0))
