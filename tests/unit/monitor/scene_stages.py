"""Batches of a simulated stream, which the stream's own code turns into a status."""

from collections.abc import Mapping

from stream.stages import BatchWork, StageSums

BATCHES_A_STEP = 10
SHORT = {"source": 0.006, "parse": 0.03, "fold": 0.016, "mysql": 0.036, "redis": 0.011}
LONG = {"source": 0.008, "parse": 0.098, "fold": 0.058, "mysql": 0.218, "redis": 0.031}
SPARK = {"latestOffset": 4, "getBatch": 1, "walCommit": 6, "commitOffsets": 9}
PLANNING_MS = 7
SLOW_STEP = 70
SLOW_MYSQL_S = 0.84


class SceneStages:
    """The stages of a simulated stream. One step lasts `step_s` seconds."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._stages = StageSums(0.0)
        self._number = 0
        self.last_ms = 0

    def told(self, step: int, now_ms: int, lines: int, behind: int) -> Mapping[str, object]:
        """Count the lines of a step, and return the stream's report. With `lines=0` the stream
        makes no progress."""
        began_s = step * self._step_s
        for place in range(BATCHES_A_STEP if lines else 0):
            seconds = dict(LONG if behind > lines else SHORT)
            if step == SLOW_STEP and place == 0:
                seconds["mysql"] = SLOW_MYSQL_S
            self._batch(
                began_s + (place + 1) * self._step_s / BATCHES_A_STEP,
                BatchWork(seconds, lines // BATCHES_A_STEP, 900 + place, self._ages(step, seconds)),
                now_ms,
            )
        return self._stages.told(began_s + self._step_s)

    def _ages(self, step: int, seconds: Mapping[str, float]) -> list[tuple[float, int]]:
        half_ms = 140 + 900 * sum(seconds.values()) + step % 6 * 9
        return [(half_ms, 97), (2.3 * half_ms, 3)]

    def _batch(self, now_s: float, work: BatchWork, now_ms: int) -> None:
        whole_ms = round(1000 * sum(work.seconds.values())) + sum(SPARK.values()) + PLANNING_MS
        self._stages.applied(self._number, work, now_s, replayed=False)
        durations = {**SPARK, "triggerExecution": whole_ms}
        self._stages.finished(self._number, durations, now_s, now_ms)
        self._number += 1
        self.last_ms = whole_ms
