"""Reads dead letters and sends them as lines, each at most once, even if the command is killed.

A dead letter is a line that the stream could not count. Each line is committed in one transaction
together with a record which says that its dead letter was sent again. All runs on a cluster use the
same transactional id, so a run first fences the previous run. Then the run waits for open
transactions, and reads the topic to its end to learn which letters have already been sent.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from appliance.kafka.consume import Beginning, ReadRecord, ReadRequest, read
from appliance.output import CommandError
from collector.config.input_section import DEAD_LETTERS_TOPIC
from collector.send.replaying import Letter, LetterPlace, letter_of, note_headers, note_of
from protocol.client.cluster import Cluster
from protocol.client.errors import ProducerFenced, RecordTooLarge, TransactionFailed, is_transient
from protocol.client.partitioner import partition_for_key
from protocol.client.producer import Producer, RecordMetadata
from protocol.errors import ApiError

TRANSACTIONAL_ID = "millrace-dead-letters"
TRANSACTION_TIMEOUT_MS = 30_000
TRANSACTION_LETTERS_MAX = 500
TRANSACTION_BYTES_MAX = 4 << 20
LETTERS_BYTES_MAX = 256 << 20
"""The largest number of bytes of dead letters in memory. If there are more, the user must choose
fewer letters."""

Chooses = Callable[[Letter], bool]


@dataclass(slots=True)
class DeadLetters:
    """Dead letters by their position (topic, partition, offset), and the times at which letters
    were sent again."""

    letters: dict[LetterPlace, Letter] = field(default_factory=dict)
    replayed_ms: dict[LetterPlace, int] = field(default_factory=dict)
    size_bytes: int = 0

    def take(self, one: ReadRecord, chooses: Chooses) -> None:
        """Add one record of the topic of dead letters. Raises CommandError if there are too many
        letters."""
        record = one.record
        noted = note_of(record.headers)
        if noted is not None:
            self.replayed_ms[noted] = record.timestamp_ms
            return
        place = LetterPlace(record.partition, record.offset)
        letter = letter_of(place, record.timestamp_ms, record.key, record.value, record.headers)
        if chooses(letter):
            self.letters[place] = letter
            self.size_bytes += len(letter.value)
            if self.size_bytes > LETTERS_BYTES_MAX:
                raise CommandError(
                    f"the chosen dead letters have more than {LETTERS_BYTES_MAX >> 20} MiB: "
                    "choose fewer with --file, --since or --reason"
                )


@dataclass(frozen=True, slots=True)
class Line:
    """The record that is sent for a dead letter."""

    letter: Letter
    topic: str
    value: bytes


async def look(
    cluster: Cluster, beginning: Beginning, chooses: Chooses, *, past_open: bool = False
) -> DeadLetters:
    """Read the chosen dead letters. If `past_open` is true, wait for transactions that are still
    open.
    """
    shelf = DeadLetters()
    wanted = ReadRequest(
        topics=(DEAD_LETTERS_TOPIC,),
        beginning=beginning,
        isolation_level=1,
        ends=True,
        past_open=past_open,
    )
    await read(cluster, wanted, lambda one: shelf.take(one, chooses))
    return shelf


class DeadLetterReplay:
    """The replay of dead letters by one command.

    When it starts, it fences every other replay of the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = Producer(
            cluster,
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )

    async def __aenter__(self) -> "DeadLetterReplay":
        await self._producer.start()
        try:
            await self._producer.init_transactions()
        except BaseException:
            await self._producer.close(1)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.close(TRANSACTION_TIMEOUT_MS)

    async def put_back(self, lines: Sequence[Line]) -> dict[LetterPlace, str]:
        """Send lines. Return the rejected lines by the position of their letters, each with the
        reason.

        Raises CommandError when another replay has fenced this one. Raises ApiError or ClientError
        when no broker answers. The lines that were sent before the error are recorded as sent, so
        the next run skips them.
        """
        refused: dict[LetterPlace, str] = {}
        try:
            for portion in portions(lines):
                left = list(portion)
                while left and (found := await self._put_back_together(left)):
                    refused |= found
                    left = [line for line in left if line.letter.place not in found]
        except ProducerFenced as error:
            raise CommandError(
                "another replay of dead letters has started in the meantime, so this one has ended"
            ) from error
        return refused

    async def _put_back_together(self, lines: Sequence[Line]) -> dict[LetterPlace, str]:
        """Send lines in one transaction. Return the rejected lines with their reasons.

        If the result is empty, the transaction is committed.
        """
        refused: dict[LetterPlace, str] = {}
        futures: dict[LetterPlace, asyncio.Future[RecordMetadata]] = {}
        self._producer.begin_transaction()
        try:
            for line in lines:
                futures[line.letter.place] = await self._send(line)
            await self._producer.commit_transaction()
        except RecordTooLarge as error:
            refused[line.letter.place] = str(error)
        except TransactionFailed as error:
            for place, future in futures.items():
                reason = future.exception() if future.done() else None
                if isinstance(reason, ApiError) and not is_transient(reason):
                    refused[place] = str(reason)
            if not refused:
                raise error.__cause__ if isinstance(error.__cause__, ApiError) else error from None
        else:
            return {}
        await self._producer.abort_transaction()
        for future in futures.values():
            future.exception()
        return refused

    async def _send(self, line: Line) -> "asyncio.Future[RecordMetadata]":
        """Send a line, and the record which says that its letter was sent again.

        Return the future of the line.
        """
        letter = line.letter
        partition = None
        if letter.key is not None:
            metadata = await self._cluster.metadata([line.topic])
            partition = partition_for_key(letter.key, len(metadata.topics[line.topic].partitions))
        sent = await self._producer.send(
            line.topic,
            line.value,
            key=letter.line_key,
            partition=partition,
            headers=letter.line_headers,
        )
        noted = await self._producer.send(
            DEAD_LETTERS_TOPIC,
            b"",
            key=letter.key,
            partition=letter.place.partition,
            headers=note_headers(letter.place),
        )
        noted.add_done_callback(lambda future: future.cancelled() or future.exception())
        return sent


def portions(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Split the lines into transactions of bounded size."""
    portion: list[Line] = []
    size = 0
    for line in lines:
        is_full = len(portion) >= TRANSACTION_LETTERS_MAX
        if portion and (is_full or size + len(line.value) > TRANSACTION_BYTES_MAX):
            yield portion
            portion, size = [], 0
        portion.append(line)
        size += len(line.value)
    if portion:
        yield portion


async def missing_topics(cluster: Cluster, names: Sequence[str]) -> set[str]:
    """Return which of these topics do not exist."""
    metadata = await cluster.metadata(names, refresh=True)
    return {name for name in names if not metadata.topics[name].partitions}
