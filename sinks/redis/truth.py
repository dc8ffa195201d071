"""The truth in Redis without MySQL: one script call writes guard, cells, ledger and view.

The server must run with `appendonly yes` and `appendfsync always`. Otherwise a crash can lose
merges that Spark will not send again. If the ledger lacks merges in spite of that, the stream
resumes from the ledger with a new query id.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from redis.typing import EncodableT, FieldT

from sinks.cell_reader import Ranking
from sinks.cells.merge import (
    Cell,
    CellId,
    Cells,
    WindowId,
    fallen_windows,
    fold_to_windows,
    keep_in_redis_s,
    merge_with_stored,
    overflow_candidates,
)
from sinks.config import RedisSettings
from sinks.errors import DefinitionChanged, SchemaTooNew, SchemaTooOld, SinkUnavailable
from sinks.keys import is_other, redis_field
from sinks.ledger import BatchKind, after, compare
from sinks.redis.link import (
    GUARD_KEY,
    connect,
    encode_write,
    guarded_call,
    meta_fields,
    progress_of,
    published,
)
from sinks.redis.script import MERGE, OPEN
from sinks.redis.view import is_shown, window_key, writes
from sinks.rows import Batch, MetricDefinition, definitions_differing
from sinks.truth import Merged, WriterGuard, check_ours
from sinks.unparsed import (
    REASON_CHARACTERS_MAX,
    SAMPLE_BYTES_MAX,
    SAMPLES_KEPT_DAYS,
    SAMPLES_PER_FILE_AND_DAY,
)
from sinks.values import Aggregate, value_of

LEDGER_KEY = "mill:ledger"
DEFINITIONS_KEY = "mill:definitions"
STATE_PREFIX = "mill:state:"
SAMPLES_PREFIX = "mill:unparsed_lines:"
# The version of the data under `mill:state:`. Unreleased versions did not write this key.
STATE_VERSION_KEY = "mill:state_version"
STATE_VERSION = 2
COUNT_FIELD = "n_keys"
GUARD_FIELDS = ("epoch", "query", "batch", "seq")
# The keys expire this much later than `keep` says, because the server's clock may be ahead of the
# driver's clock, which decides what is still counted.
EXPIRY_MARGIN_S = 86_400
_NUMBERS = ("sum", "min", "max")
_SKETCHES = ("hll", "kll")


class RedisTruth:
    """A Redis that is both the truth and the live view, as one driver uses it."""

    def __init__(self, settings: RedisSettings) -> None:
        self._client = connect(settings)
        self._merge = self._client.register_script(MERGE)
        self._open = self._client.register_script(OPEN)
        self._definitions: dict[str, MetricDefinition] = {}
        self._query_id = ""
        self._epoch = -1

    def open(
        self, query_id: str, definitions: Sequence[MetricDefinition], now_s: int
    ) -> WriterGuard:
        """Check the version and the definitions, and raise the epoch for this driver.

        Raises DefinitionChanged, SchemaTooNew, SchemaTooOld, SinkUnavailable.
        """
        self._check_version()
        self._definitions = {definition.name: definition for definition in definitions}
        stored = {
            name: bytes.fromhex(json.loads(text)["hash"])
            for name, text in guarded_call(lambda: self._client.hgetall(DEFINITIONS_KEY)).items()
        }
        if changed := definitions_differing(definitions, stored):
            raise DefinitionChanged(changed)
        since = datetime.fromtimestamp(now_s, UTC).isoformat()
        fresh: dict[FieldT, EncodableT] = {
            d.name: json.dumps({"hash": d.definition_hash.hex(), "since": since})
            for d in definitions
            if d.name not in stored
        }
        if fresh:
            guarded_call(lambda: self._client.hset(DEFINITIONS_KEY, mapping=fresh))
        guard = _guard(guarded_call(lambda: self._open(args=[query_id])))
        self._query_id, self._epoch = query_id, guard.epoch
        return guard

    def _check_version(self) -> None:
        """Store the version in an empty server. Raises SchemaTooNew, SchemaTooOld."""
        found = guarded_call(lambda: self._client.get(STATE_VERSION_KEY))
        if found is None and not guarded_call(lambda: self._client.exists(LEDGER_KEY)):
            guarded_call(lambda: self._client.set(STATE_VERSION_KEY, STATE_VERSION))
            return
        version = int(found or 1)
        if version > STATE_VERSION:
            raise SchemaTooNew(version, STATE_VERSION)
        if version < STATE_VERSION:
            raise SchemaTooOld("redis", f"version {version}", STATE_VERSION)

    def ledger(self) -> Mapping[tuple[str, int], int]:
        """Return end offsets by (topic, partition)."""
        found = guarded_call(lambda: self._client.hgetall(LEDGER_KEY))
        return {_partition(name): int(end) for name, end in found.items()}

    def apply(self, batch: Batch) -> Merged:
        """Merge a batch exactly once."""
        guard = _guard(guarded_call(lambda: self._client.hmget(GUARD_KEY, GUARD_FIELDS)))
        check_ours(guard, self._query_id, self._epoch)
        new_id = batch.batch_id > guard.batch_id
        if compare(batch.ranges, self.ledger(), after_guard=new_id) is BatchKind.REPLAY:
            return Merged(guard, {}, replayed=True)
        guard = WriterGuard(guard.query_id, guard.epoch, batch.batch_id, guard.seq + 1)
        left_out: set[CellId] = set()
        cells, stored, counts = self._merged_cells(batch, left_out)
        rankings = self._rankings(cells, stored, batch.now_ms // 1000)
        body = self._call_body(batch, guard, cells, counts, rankings)
        answer = guarded_call(lambda: self._merge(args=[json.dumps(body)]))
        if answer == "fenced":
            raise SinkUnavailable("redis", "its guard changed while a batch was merged")
        return Merged(
            guard,
            cells,
            replayed=answer == "replay",
            changed=len(cells),
            left_out=len(left_out),
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _merged_cells(
        self, batch: Batch, left_out: set[CellId]
    ) -> tuple[Cells, Cells, dict[WindowId, int]]:
        now_s = batch.now_ms // 1000
        folded = fold_to_windows(
            batch.rows, self._definitions, now_s, keep_in_redis_s, left_out=left_out
        )
        touched = {*folded, *overflow_candidates(folded, self._definitions)}
        by_window: dict[WindowId, list[CellId]] = {}
        for cell_id in sorted(touched):
            by_window.setdefault(cell_id.window, []).append(cell_id)
        pipeline = self._client.pipeline(transaction=False)
        for window, ids in by_window.items():
            pipeline.hmget(_state_key(window), [COUNT_FIELD, *(i.k_hash.hex() for i in ids)])
        answers = guarded_call(pipeline.execute) if by_window else []
        stored: Cells = {}
        counts: dict[WindowId, int] = {}
        for (window, ids), (count, *texts) in zip(by_window.items(), answers, strict=True):
            counts[window] = int(count or 0)
            stored |= {i: _decode(text) for i, text in zip(ids, texts, strict=True) if text}
        cells, new_counts = merge_with_stored(folded, stored, counts, self._definitions)
        return cells, stored, new_counts

    def _rankings(self, cells: Cells, stored: Cells, now_s: int) -> dict[WindowId, Ranking]:
        """Return the complete rankings of the windows in which a value fell."""
        rankings: dict[WindowId, Ranking] = {}
        for window in fallen_windows(cells, stored, self._definitions):
            if not is_shown(window, self._definitions, now_s):
                continue
            definition = self._definitions[window.metric]
            found = guarded_call(partial(self._client.hgetall, _state_key(window)))
            present = {
                CellId(*window, bytes.fromhex(name)): _decode(text)
                for name, text in found.items()
                if name != COUNT_FIELD
            }
            present |= {one: cell for one, cell in cells.items() if one.window == window}
            ranked = [
                (cell.key, value)
                for cell in present.values()
                if not is_other(cell.key)
                and (value := value_of(definition.measure, cell.aggregate)) is not None
            ]
            ranked.sort(key=lambda one: (-one[1], redis_field(one[0])))
            rankings[window] = ranked[: definition.top]
        return rankings

    def _samples(self, batch: Batch) -> tuple[str, list[str]]:
        """Return the key of the day's samples, and the fields and values to write, in turn.

        Samples above the limit of their file are left out.
        """
        day = datetime.fromtimestamp(batch.now_ms / 1000, UTC).date().isoformat()
        key = SAMPLES_PREFIX + day
        by_file: dict[str, dict[str, str]] = {}
        for row in batch.unparsed:
            for sample in row.samples:
                told = {
                    "file": row.file,
                    "reason": row.reason[:REASON_CHARACTERS_MAX],
                    "line": base64.b64encode(sample.line[:SAMPLE_BYTES_MAX]).decode("ascii"),
                }
                place = f"{row.topic}-{sample.partition}-{sample.offset}"
                by_file.setdefault(row.file, {}).setdefault(place, json.dumps(told))
        pairs: list[str] = []
        for file, lines in by_file.items():
            count = "count:" + redis_field((file,))
            kept = int(guarded_call(partial(self._client.hget, key, count)) or 0)
            some = list(lines.items())[: max(0, SAMPLES_PER_FILE_AND_DAY - kept)]
            pairs += [text for pair in some for text in pair]
            pairs += [count, str(kept + len(some))]
        return key, pairs

    def _call_body(
        self,
        batch: Batch,
        guard: WriterGuard,
        cells: Cells,
        counts: Mapping[WindowId, int],
        rankings: Mapping[WindowId, Ranking],
    ) -> dict[str, object]:
        samples_key, samples = self._samples(batch)
        progress = progress_of(batch, cells)
        now_s = batch.now_ms // 1000
        ordered = [(cell_id, cells[cell_id]) for cell_id in sorted(cells)]
        return {
            "epoch": str(guard.epoch),
            "query": guard.query_id,
            "batch": str(guard.batch_id),
            "seq": str(guard.seq),
            "last": True,
            "writes": [
                encode_write(w) for w in writes(ordered, self._definitions, now_s, rankings)
            ],
            "states": self._states(cells, counts),
            "ledger": [
                text
                for (topic, part), end in after(batch.ranges).items()
                for text in (f"{topic}-{part}", str(end))
            ],
            "unparsed": [
                text
                for row in batch.unparsed
                for text in (redis_field((row.topic, row.file, row.reason)), str(row.count))
            ],
            "samples_key": samples_key,
            "samples_expire": now_s + SAMPLES_KEPT_DAYS * 86_400,
            "samples": samples,
            "meta": meta_fields(guard, progress),
            "published": published(guard, progress),
        }

    def _states(self, cells: Cells, counts: Mapping[WindowId, int]) -> list[dict[str, object]]:
        fields: dict[WindowId, list[str]] = {}
        for cell_id, cell in cells.items():
            fields.setdefault(cell_id.window, []).extend([cell_id.k_hash.hex(), _encode(cell)])
        for window, count in counts.items():
            fields.setdefault(window, []).extend([COUNT_FIELD, str(count)])
        states: list[dict[str, object]] = []
        for window, pairs in fields.items():
            # Lua accepts about 8,000 values per call; 1,000 pairs per command are well below.
            for begin in range(0, len(pairs), 2_000):
                some = pairs[begin : begin + 2_000]
                expire = self._expiry(window)
                states.append({"key": _state_key(window), "expire": expire, "fields": some})
        return states

    def _expiry(self, window: WindowId) -> int:
        keep_s = keep_in_redis_s(self._definitions[window.metric], window.size_s)
        if keep_s is None:
            return 0
        return window.start_s + window.size_s + keep_s + EXPIRY_MARGIN_S


def _state_key(window: WindowId) -> str:
    return STATE_PREFIX + window_key(*window).removeprefix("mill:")


def _partition(name: str) -> tuple[str, int]:
    topic, _, part = name.rpartition("-")
    return topic, int(part)


def _guard(answer: Sequence[Any]) -> WriterGuard:
    epoch, query_id, batch_id, seq = answer
    return WriterGuard(str(query_id or ""), int(epoch or 0), int(batch_id or -1), int(seq or 0))


def _encode(cell: Cell) -> str:
    a = cell.aggregate
    values: dict[str, object] = {"key": list(cell.key), "count": a.count}
    for name, number in (("sum", a.sum), ("min", a.min), ("max", a.max)):
        if number is not None:
            values[name] = str(number)
    for name, sketch in (("hll", a.hll), ("kll", a.kll)):
        if sketch is not None:
            values[name] = base64.b64encode(sketch).decode("ascii")
    return json.dumps(values)


def _decode(text: str) -> Cell:
    values = json.loads(text)
    total, least, most = (Decimal(values[n]) if n in values else None for n in _NUMBERS)
    hll, kll = (base64.b64decode(values[n]) if n in values else None for n in _SKETCHES)
    key = tuple(None if part is None else str(part) for part in values["key"])
    return Cell(key, Aggregate(int(values["count"]), total, least, most, hll, kll))
