"""Runs one of the mill's own commands in a process, and returns what it prints.

A part imports only its own room, so it runs a command to use the code of another room.
"""

import asyncio
from collections.abc import Collection, Sequence

LINES_TOLD = 5
"""The number of lines of standard error that a failure quotes."""


class CommandFailed(Exception):
    """The command failed or did not end in time; the text says why."""


async def run_command(
    command: Sequence[str], timeout_s: float, codes: Collection[int] = (0,)
) -> bytes:
    """Run a command to its end and return its standard output.

    `codes` are the exit codes that mean success. The process is killed after `timeout_s` seconds.
    Raises CommandFailed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise CommandFailed(str(error)) from error
    try:
        async with asyncio.timeout(timeout_s):
            printed, complaints = await process.communicate()
    except TimeoutError as error:
        raise CommandFailed(f"no answer from {command[0]} within {timeout_s:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode not in codes:
        lines = complaints.decode(errors="replace").splitlines()[:LINES_TOLD]
        raise CommandFailed("; ".join(lines) or "no reason given")
    return printed
