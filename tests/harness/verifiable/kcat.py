"""kcat with the librdkafka of the distribution, as a verifiable client (`words`).

    python -m tests.harness.verifiable.kcat BOOTSTRAP TOPIC

It has no transactions and prints no acknowledgement of a single record. It exits with 0 only if
every record was delivered. Then all records are reported, without their offsets.
"""

import re
import subprocess

from tests.harness.verifiable import words

RECORD = '{"topic": "%t", "partition": %p, "offset": %o, "value": "%s"}'
_RECORD = re.compile(r'\{"topic": "(.*)", "partition": (\d+), "offset": (\d+), "value": "(.*)"\}')
_ASSIGNED = re.compile(r"rebalanced .*: assigned: (.*)$")
_PLACE = re.compile(r"(\S+) \[(\d+)\]")
_ERROR = re.compile(r"% ERROR: (Local: [^:]*|[^:]*)")
_INFORMS = re.compile(r"^% (?:Group|Reached end|Waiting for group)")

CONNECTED = ("-X", "enable.sparse.connections=false")
"""Connect to all brokers. Otherwise librdkafka 2.0.2 connects only to the brokers that it needs. It
counts a lost broker as down until it needs that broker again. After all brokers were lost one after
the other, kcat ends, although all are up again. Kafka 4.3.1 has the same effect."""


def _connection() -> list[str]:
    security = [f"{key}={value}" for key, value in words.librdkafka_security().items()]
    return [*CONNECTED, *(word for setting in security for word in ("-X", setting))]


def produce(bootstrap: str, topic: str) -> None:
    """Produce idempotently with one process per partition. A single kcat process would choose the
    partitions itself."""
    options = ("-X", "enable.idempotence=true", "-X", "linger.ms=5", *_connection())
    kcats = [
        subprocess.Popen(
            ["kcat", "-b", bootstrap, "-P", "-t", topic, "-p", str(partition), *options],
            stdin=subprocess.PIPE,
            text=True,
        )
        for partition in range(words.PARTITIONS)
    ]
    count = 0
    for number in words.paced(words.PACE_S):
        stdin = kcats[number % words.PARTITIONS].stdin
        assert stdin is not None
        stdin.write(f"{number}\n")
        stdin.flush()
        count = number + 1
    for partition, kcat in enumerate(kcats):
        kcat.communicate()
        if kcat.returncode != 0:
            words.say(
                "error",
                doing="produce",
                topic=topic,
                exception="exit",
                message=str(kcat.returncode),
            )
            continue
        for number in range(partition, count, words.PARTITIONS):
            words.sent(topic, number, partition, -1)


def consume(bootstrap: str, topic: str) -> None:
    """Consume as the only member of a group, with automatic commits."""
    # Flush line by line, otherwise kcat's own messages can appear in the middle of a record.
    command = ["stdbuf", "-oL", "kcat", "-b", bootstrap, "-G", f"{topic}-readers", *_connection()]
    kcat = subprocess.Popen(
        [*command, "-f", f"{RECORD}\\n", "-X", "auto.offset.reset=earliest", topic],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    words.when_reading_ends(kcat.terminate)
    assert kcat.stdout is not None
    for line in kcat.stdout:
        if (found := _RECORD.search(line)) is not None:
            of, partition, offset, value = found.groups()
            words.read(of, int(partition), int(offset), value.encode())
        elif (rebalanced := _ASSIGNED.search(line)) is not None:
            places = _PLACE.findall(rebalanced[1])
            words.assigned((of, int(partition)) for of, partition in places)
        elif (error := _ERROR.match(line)) is not None:
            words.say("error", doing="consume", topic=topic, exception=error[1], message=line)
        elif not _INFORMS.match(line):
            words.say("log", line=line.rstrip())
    if kcat.wait() != 0:
        words.say(
            "error", doing="consume", topic=topic, exception="exit", message=str(kcat.returncode)
        )


if __name__ == "__main__":
    words.in_threads((produce,), consume)
