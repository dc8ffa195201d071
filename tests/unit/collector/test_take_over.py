"""The waits of an agent before and between its attempts to take over its instance."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.agent import Agent
from collector.config.settings import CollectorSettings
from collector.timing.clock import ForwardClock
from protocol.client.errors import BrokerUnreachable

INTERVAL_MS = 150
WAKE_S = 0.01


def agent_of(folder: Path, interval_ms: int, patience_ms: int | None = None) -> Agent:
    """Return the agent of a collector with a trust group, whose random waits are the longest."""
    settings = CollectorSettings.model_validate(
        {
            "section": {
                "instance": "host-1",
                "group": "web",
                "commit_interval": f"{interval_ms}ms",
                "inputs": [{"paths": ["watched/**"], "topic": "logs.web"}],
            },
            "bootstrap_servers": "127.0.0.1:1",
            "home": str(folder),
            "data_dir": str(folder / "data"),
        }
    )
    return Agent(settings, "host-1", ForwardClock(), patience_ms)


def attempts_of(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list to which the moment of each attempt is added. Every attempt fails."""
    attempts: list[float] = []

    async def refused(timeout_ms: int = 0) -> None:
        attempts.append(time.monotonic())
        raise BrokerUnreachable("no broker")

    monkeypatch.setattr(agent.brokers, "reach", refused)
    monkeypatch.setattr("collector.agent.first_wait_ms", lambda section, rng: 2 * INTERVAL_MS)
    return attempts


async def run_until(agent: Agent, is_done: Callable[[], bool]) -> None:
    """Start the agent, and wake it all the time, as changed files do. Stop it at the condition."""
    starting = asyncio.create_task(agent.start())
    async with asyncio.timeout(20):
        while not is_done() and not starting.done():
            agent.lookout._on_event()
            await asyncio.sleep(WAKE_S)
        agent.stop()
        assert not await starting
    agent.lookout.stop()
    await agent.close()


def test_changed_files_do_not_shorten_the_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector that has lost its transaction watches its files while it starts again."""

    async def work() -> None:
        agent = agent_of(tmp_path, INTERVAL_MS)
        attempts = attempts_of(agent, monkeypatch)
        began = time.monotonic()
        await run_until(agent, lambda: len(attempts) == 2)
        assert attempts[0] - began >= 2 * INTERVAL_MS / 1000
        assert attempts[1] - attempts[0] >= 0.2, "the shortest wait of a collector with a group"

    asyncio.run(work())


def test_an_agent_that_waits_for_its_first_attempt_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        agent = agent_of(tmp_path, 60_000)
        attempts = attempts_of(agent, monkeypatch)
        monkeypatch.setattr("collector.agent.first_wait_ms", lambda section, rng: 30_000)
        began = time.monotonic()
        await run_until(agent, lambda: time.monotonic() - began > 0.2)
        assert time.monotonic() - began < 5
        assert attempts == []

    asyncio.run(work())


def test_the_first_wait_does_not_use_up_the_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A one-shot run asks the brokers for as long as its settings say."""

    async def work() -> None:
        agent = agent_of(tmp_path, INTERVAL_MS, patience_ms=INTERVAL_MS)
        attempts = attempts_of(agent, monkeypatch)
        await run_until(agent, lambda: False)
        assert len(attempts) == 2
        assert agent.gave_up == "no answer from the brokers for 0 s"

    asyncio.run(work())
