"""The output of a verifiable client, in the format of Kafka's VerifiableProducer and
VerifiableConsumer.

Each line of standard output is one JSON object. A client writes numbers at a fixed rate to `TOPIC`
and others in transactions to `TOPIC-tx`. Number n goes to partition n mod `PARTITIONS`. It reads
both topics as the only member of a group. A line of input ends its writing after every record has
its answer, and the end of the input ends its reading. It continues after every error, and prints
each error that its library passes to the application.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

PARTITIONS = 3
PACE_S = 0.01
PER_TRANSACTION = 10
TRANSACTION_PACE_S = 0.1
ABORT_EVERY = 5
POLL_S = 0.2
POLL_COUNT = 500

CA_VARIABLE = "VERIFIABLE_CA"
"""The environment variable with the file of the CA, if the brokers have TLS."""

USER_VARIABLE, PASSWORD_VARIABLE = "VERIFIABLE_USER", "VERIFIABLE_PASSWORD"
"""Those with the user, if clients must log in."""

MECHANISM = "SCRAM-SHA-512"

WRITES_NO_MORE = threading.Event()
READS_NO_MORE = threading.Event()
_speaking = threading.Lock()


def say(name: str, **fields: object) -> None:
    """Print one whole line, from any thread."""
    line = json.dumps({"name": name, **fields})
    with _speaking:
        # Write the line in one piece, also when Python runs unbuffered.
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def sent(topic: str, number: int, partition: int, offset: int, transaction: int = -1) -> None:
    """Report an acknowledged record. The offset is -1 if the client does not know it."""
    say(
        "producer_send_success",
        topic=topic, value=str(number), partition=partition, offset=offset, transaction=transaction,
    )  # fmt: skip


def ended(topic: str, transaction: int, *, is_committed: bool) -> None:
    """Report that a transaction ended as requested."""
    say("transaction_ended", topic=topic, transaction=transaction, is_committed=is_committed)


def failed(doing: str, topic: str, error: object) -> None:
    """Report an error that the library passed to the application."""
    name = getattr(error, "name", None)
    kind = name() if callable(name) else type(error).__name__
    say("error", doing=doing, topic=topic, exception=kind, message=str(error))


def assigned(partitions: Iterable[tuple[str, int]]) -> None:
    """Report partitions added to the member; it reads each from the committed offset."""
    say("partitions_assigned", partitions=[list(place) for place in partitions])


def read(topic: str, partition: int, offset: int, value: bytes | None) -> None:
    """Report a record that the member got."""
    text = (value or b"").decode()
    say("record_data", topic=topic, partition=partition, offset=offset, value=text)


def topics_of(topic: str) -> tuple[str, str]:
    """Return the topics that a client writes: record by record, and in transactions."""
    return topic, f"{topic}-tx"


def begin() -> tuple[str, str]:
    """Start listening to the input. Return the bootstrap servers and the topic of the command
    line."""

    def listen() -> None:
        sys.stdin.readline()
        WRITES_NO_MORE.set()
        sys.stdin.read()
        READS_NO_MORE.set()

    threading.Thread(target=listen, daemon=True).start()
    _, bootstrap, topic = sys.argv
    return bootstrap, topic


def trusted_ca() -> str | None:
    """Return the file of the CA of brokers with TLS, or None for plain connections."""
    return os.environ.get(CA_VARIABLE)


def login() -> tuple[str, str] | None:
    """Return the user and the password of the client, or None without a login."""
    user = os.environ.get(USER_VARIABLE)
    return None if user is None else (user, os.environ[PASSWORD_VARIABLE])


def librdkafka_security() -> dict[str, str]:
    """Return librdkafka's settings for the kind of connection."""
    ca, known = trusted_ca(), login()
    if ca is None:
        return {}
    if known is None:
        return {"security.protocol": "SSL", "ssl.ca.location": ca}
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": ca,
        "sasl.mechanisms": MECHANISM,
        "sasl.username": known[0],
        "sasl.password": known[1],
    }


def python_security() -> dict[str, str]:
    """Return the settings that kafka-python and aiokafka share, without the CA."""
    if trusted_ca() is None:
        return {}
    known = login()
    if known is None:
        return {"security_protocol": "SSL"}
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": known[0],
        "sasl_plain_password": known[1],
    }


def java_security() -> dict[str, str]:
    """Return the same settings for Java's clients."""
    ca = trusted_ca()
    if ca is None:
        return {}
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    known = login()
    if known is None:
        return {"security.protocol": "SSL", **store}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    entry = f'{module} required username="{known[0]}" password="{known[1]}";'
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": entry,
        **store,
    }


def in_threads(
    writers: Iterable[Callable[[str, str], None]], consume: Callable[[str, str], None]
) -> None:
    """Run a client with a blocking library. A writer gets the topic for its turn."""
    bootstrap, topic = begin()
    threading.excepthook = _end_of_all
    reading = threading.Thread(target=consume, args=(bootstrap, topic))
    writing = [
        threading.Thread(target=write, args=(bootstrap, of))
        for write, of in zip(writers, topics_of(topic), strict=False)
    ]
    for thread in (reading, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    say("writing_ended")
    reading.join()
    say("shutdown_complete")


def _end_of_all(ended: threading.ExceptHookArgs) -> None:
    """End the process after a fault of the client, so that the waiting test sees the end at
    once."""
    threading.__excepthook__(ended)
    sys.stderr.flush()
    os._exit(1)


def when_writing_ends(do: Callable[[], object]) -> None:
    """Call a function when the writing ends, while this thread waits for something else."""
    _when(WRITES_NO_MORE, do)


def when_reading_ends(do: Callable[[], object]) -> None:
    """Call a function when the reading ends, while this thread waits for something else."""
    _when(READS_NO_MORE, do)


def _when(event: threading.Event, do: Callable[[], object]) -> None:
    def wait() -> None:
        event.wait()
        do()

    threading.Thread(target=wait, daemon=True).start()


def paced(pace_s: float) -> Iterator[int]:
    """Yield the numbers from 0 on at a fixed rate until the test ends the writing."""
    number = 0
    while not WRITES_NO_MORE.wait(pace_s):
        yield number
        number += 1


async def paced_async(pace_s: float) -> AsyncIterator[int]:
    """Yield the same for an asyncio loop, which does other work between the numbers."""
    number = 0
    while not WRITES_NO_MORE.is_set():
        yield number
        number += 1
        await asyncio.sleep(pace_s)


def is_kept(transaction: int) -> bool:
    """Return True if this transaction must be committed."""
    return transaction % ABORT_EVERY != ABORT_EVERY - 1


def numbers_of(transaction: int) -> range:
    """Return the numbers that this transaction writes."""
    return range(transaction * PER_TRANSACTION, (transaction + 1) * PER_TRANSACTION)
