"""A one-shot run: read all matching files to their end, commit, and exit.

The unfinished last line of a file is sent too, as a record with the header `millrace.unfinished`,
because this process will not see its end.
"""

import asyncio

from collector.agent import Agent
from collector.identity.generation import Generation
from collector.identity.sightings import State
from collector.progress import Reporter, RunProgress
from collector.status import file_error

REPORT_MS = 500


class OneShot:
    """Runs an agent until all files are read to their end."""

    def __init__(self, agent: Agent, reporter: Reporter):
        self._agent = agent
        self._reporter = reporter
        self._started_ms = agent.clock()
        self._report_at_ms = 0
        self._begun: dict[str, int] = {}
        # Do not wait for text that replaces NULs, because the files are read only once.
        agent.reader.in_place.quiet_ms = 0

    async def run(self) -> list[str]:
        """Read all files.

        Return those that could not be read to their end, each with the reason.
        """
        agent = self._agent
        for generation in agent.registry.generations.values():
            self._begun[generation.name] = generation.safe_position
        while not agent.is_stopping:
            await self._read_to_the_end()
            known = agent.registry.generations.values()
            for generation in sorted(known, key=lambda one: one.order):
                if generation.state in (State.LIVE, State.ROTATED):
                    agent.feeder.finish(generation, agent.clock())
            if await agent.drain(None):
                break
        incomplete = self._incomplete()
        self._reporter.done(self._run_progress(), incomplete)
        return incomplete

    async def _read_to_the_end(self) -> None:
        agent = self._agent
        while not agent.is_stopping:
            await agent.step(flush=not agent.feeder.is_busy)
            agent.lose_patience(agent.committer.waiting_since_ms)
            agent.lose_patience(agent.topic_maker.waiting_since_ms, "topic for some files")
            is_read = not agent.feeder.is_busy and not agent.feeder.is_waiting
            if is_read and agent.committer.is_idle:
                return
            self._report()
            await asyncio.sleep(0 if agent.feeder.is_busy else 0.01)

    def _incomplete(self) -> list[str]:
        found = [
            f"{generation.path}: {file_error(generation)}"
            for generation in self._alive()
            if file_error(generation) is not None
        ]
        for topic, reason in self._agent.topic_maker.problems.items():
            found.append(f"topic {topic} could not be created: {reason}")
        if self._agent.is_stopping:
            found.append(self._agent.gave_up or "stopped before all files were read")
        return [*found, *self._agent.lookout.last.problems]

    def _alive(self) -> list[Generation]:
        known = self._agent.registry.generations.values()
        return [generation for generation in known if not generation.state.has_ended]

    def _run_progress(self) -> RunProgress:
        alive = self._alive()
        done = sum(g.safe_position - self._begun.get(g.name, 0) for g in alive)
        return RunProgress(
            files=len(alive),
            files_done=sum(not generation.lag_bytes for generation in alive),
            bytes_total=done + sum(generation.lag_bytes for generation in alive),
            bytes_done=done,
            lines=self._agent.registry.counters["lines_total"],
            elapsed_s=(self._agent.clock() - self._started_ms) / 1000,
        )

    def _report(self) -> None:
        now_ms = self._agent.clock()
        if now_ms >= self._report_at_ms:
            self._report_at_ms = now_ms + REPORT_MS
            self._reporter.show(self._run_progress())
