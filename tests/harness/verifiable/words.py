"""The output of a verifiable client, in the format of Kafka's VerifiableProducer and
VerifiableConsumer.

Each line of standard output is one JSON object. A client writes numbers at a fixed rate to `TOPIC`,
and other numbers in transactions to `TOPIC-tx`. Number n goes to partition n mod `PARTITIONS`. The
client reads both topics as the only member of a group. After a line on standard input it stops
writing, when every record has a result. At the end of standard input it stops reading. It continues
after every error, and prints each error that its library passes to the application.
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
"""The environment variables with the user and the password, if clients must log in."""

MECHANISM = "SCRAM-SHA-512"

WRITES_NO_MORE = threading.Event()
READS_NO_MORE = threading.Event()
_speaking = threading.Lock()


def say(name: str, **fields: object) -> None:
    """Print one whole line, from any thread."""
    line = json.dumps({"name": name, **fields})
    with _speaking:
        # One write call, so that lines of two threads do not mix even if Python runs unbuffered.
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
    """Report partitions assigned to the member, which reads each from the committed offset."""
    say("partitions_assigned", partitions=[list(place) for place in partitions])


def read(topic: str, partition: int, offset: int, value: bytes | None) -> None:
    """Report a record that the member got."""
    text = (value or b"").decode()
    say("record_data", topic=topic, partition=partition, offset=offset, value=text)


def topics_of(topic: str) -> tuple[str, str]:
    """Return the two topics that a client writes: without and with transactions."""
    return topic, f"{topic}-tx"


def begin() -> tuple[str, str]:
    """Start a thread that reads standard input. Return the bootstrap servers and the topic from
    the command line."""

    def listen() -> None:
        sys.stdin.readline()
        WRITES_NO_MORE.set()
        sys.stdin.read()
        READS_NO_MORE.set()

    threading.Thread(target=listen, daemon=True).start()
    _, bootstrap, topic = sys.argv
    return bootstrap, topic


def trusted_ca() -> str | None:
    """Return the file of the CA that signed the brokers' certificates, or None without TLS."""
    return os.environ.get(CA_VARIABLE)


def login() -> tuple[str, str] | None:
    """Return the user and the password of the client, or None without a login."""
    user = os.environ.get(USER_VARIABLE)
    return None if user is None else (user, os.environ[PASSWORD_VARIABLE])


def librdkafka_security() -> dict[str, str]:
    """Return librdkafka's settings for TLS and a login, if the test uses them."""
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
    """Return the TLS and login settings that kafka-python and aiokafka share, without the CA."""
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
    """Return the settings of Java's clients for TLS and a login."""
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
    """Run a client with a blocking library, each function in a thread. The first writer gets the
    topic without transactions, the second one the topic with transactions."""
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
    """End the process if one of its threads fails, so that the waiting test notices at once."""
    threading.__excepthook__(ended)
    sys.stderr.flush()
    os._exit(1)


def when_writing_ends(do: Callable[[], object]) -> None:
    """Call a function when the writing ends. This thread can do something else until then."""
    _when(WRITES_NO_MORE, do)


def when_reading_ends(do: Callable[[], object]) -> None:
    """Call a function when the reading ends. This thread can do something else until then."""
    _when(READS_NO_MORE, do)


def _when(event: threading.Event, do: Callable[[], object]) -> None:
    def wait() -> None:
        event.wait()
        do()

    threading.Thread(target=wait, daemon=True).start()


def paced(pace_s: float) -> Iterator[int]:
    """Yield 0, 1, 2… at a fixed rate until the test ends the writing."""
    number = 0
    while not WRITES_NO_MORE.wait(pace_s):
        yield number
        number += 1


async def paced_async(pace_s: float) -> AsyncIterator[int]:
    """Yield the same numbers in an asyncio loop, which can do other work between them."""
    number = 0
    while not WRITES_NO_MORE.is_set():
        yield number
        number += 1
        await asyncio.sleep(pace_s)


def is_kept(transaction: int) -> bool:
    """Return True if the client must commit this transaction, False if it must abort it."""
    return transaction % ABORT_EVERY != ABORT_EVERY - 1


def numbers_of(transaction: int) -> range:
    """Return the numbers that this transaction writes."""
    return range(transaction * PER_TRANSACTION, (transaction + 1) * PER_TRANSACTION)
