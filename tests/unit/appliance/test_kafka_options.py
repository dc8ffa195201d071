"""Command lines of Kafka's tools that fail before a request: options that exclude each other, and
invalid values."""

import struct
from pathlib import Path

import pytest

from appliance.kafka.records import DESERIALIZERS, UndecodableBytes
from appliance.kafka_tools import (
    configs,
    consumer_groups,
    dump_log,
    get_offsets,
    metadata_quorum,
    topics,
)
from appliance.kafka_tools.console_consumer import main as console_consumer
from appliance.kafka_tools.transactions import main as transactions
from appliance.kafka_tools.user_configs import credential_changes
from protocol.security.scram import Mechanism
from tests.unit.storage.kit import batch

SERVER = ("--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("options", "option", "other"),
    [
        ("--list --unavailable-partitions", "unavailable-partitions", "list"),
        ("--delete --topic t --under-min-isr-partitions", "under-min-isr-partitions", "delete"),
        ("--list --topics-with-overrides", "topics-with-overrides", "list"),
        (
            "--describe --topics-with-overrides --at-min-isr-partitions",
            *("at-min-isr-partitions", "topics-with-overrides"),
        ),
        ("--list --config a=b", "config", "list"),
        ("--describe --partitions 2", "partitions", "describe"),
        (
            "--alter --topic t --partitions 2 --replication-factor 1",
            *("replication-factor", "alter"),
        ),
        ("--delete --topic t --replica-assignment 1", "replica-assignment", "delete"),
        (
            "--create --topic t --replica-assignment 1 --partitions 1",
            *("replica-assignment", "partitions"),
        ),
        (
            "--create --topic t --replica-assignment 1 --replication-factor 1",
            *("replica-assignment", "replication-factor"),
        ),
        ("--create --topic t --if-exists", "if-exists", "create"),
        ("--describe --if-not-exists", "if-not-exists", "describe"),
        ("--delete --topic t --exclude-internal", "exclude-internal", "delete"),
    ],
)
def test_options_of_another_action(
    options: str, option: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the tool ignored the option silently, the user would take the output for an answer to
    it."""
    assert topics.main((*SERVER, *options.split())) == 2
    expected = f'Option "[{option}]" can\'t be used with option "[{other}]"'
    assert capsys.readouterr().err.splitlines()[0] == expected


@pytest.mark.parametrize(
    ("tool", "options", "said"),
    [
        (topics.main, ("--describe", "--if-exists"), "--topic or --topic-id is required"),
        (topics.main, ("--create", "--topic", "t", "--replica-assignment", "1:1"), "duplicate"),
        (consumer_groups.main, ("--list", "--type", "nonsense"), "Valid types are: Consumer, Cla"),
        (consumer_groups.main, ("--validate-regex", "lo.*"), "--validate-regex is of KIP-848"),
        (metadata_quorum.main, ("remove-controller",), "argument --controller-id/-i is required"),
        (metadata_quorum.main, ("remove-controller", "-i", "3"), "directory-id/-d is required"),
        (metadata_quorum.main, ("remove-controller", "-i", "-3", "-d", "x"), "Invalid negative"),
        (metadata_quorum.main, ("remove-controller", "-i", "3", "-d", "x"), "Failed to parse"),
        (metadata_quorum.main, ("add-controller",), "You must supply the configuration file"),
        (transactions, ("list", "--transactional-id-pattern", "["), "[ is an invalid regex."),
        (console_consumer, ("--include", "("), "( is an invalid regex."),
        (get_offsets.main, ("--topic", "("), "Error occurred: ( is an invalid regex."),
        (get_offsets.main, ("--topic", "t", "--time", "9223372036854775808"), "Malformed time"),
    ],
)
def test_what_is_refused(
    tool: object, options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(tool)
    assert tool((*SERVER, *options)) in (1, 2)
    told = capsys.readouterr()
    assert said in told.out + told.err


def test_a_former_name_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    former = ("--property", "print.key=true", "--property", "print.value=false")
    assert console_consumer((*former, "--topic", "t")) == 2
    said = capsys.readouterr().err.splitlines()
    notices = [line for line in said if "deprecated" in line]
    assert notices == [
        "Option --property is deprecated and will be removed in a future version."
        " Use --formatter-property instead."
    ]


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.1, "0.1"),
        (1.5, "1.5"),
        (1 / 3, "0.33333334"),
        (0.0, "0.0"),
        (-2.0, "-2.0"),
        (1e10, "1.0E10"),
        (-2.5e-7, "-2.5E-7"),
        (float("inf"), "Infinity"),
    ],
)
def test_a_float_has_no_more_digits_than_it_needs(number: float, shown: str) -> None:
    assert DESERIALIZERS["FloatDeserializer"](struct.pack(">f", number)).decode() == shown


def test_a_uuid_that_is_none() -> None:
    with pytest.raises(UndecodableBytes, match="UUID"):
        DESERIALIZERS["UUIDDeserializer"](b"\xff")


def test_a_dump_with_decoders_of_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / f"{'0' * 20}.log"
    log.write_bytes(batch(struct.pack(">i", -3), key=struct.pack(">q", 7)))
    api = "org.apache.kafka.tools.api"
    keys = ("--key-decoder-class", f"{api}.LongDecoder")
    values = ("--value-decoder-class", f"{api}.IntegerDecoder")
    assert dump_log.main(("--files", str(log), "--print-data-log", *keys, *values)) == 0
    assert " key: 7 payload: -3\n" in capsys.readouterr().out


def test_a_dump_with_a_decoder_that_there_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / f"{'0' * 20}.log"
    log.write_bytes(batch(b"v", key=b"k"))
    asked = ("--files", str(log), "--print-data-log", "--value-decoder-class", "my.Decoder")
    assert dump_log.main(asked) == 2
    assert "my.Decoder" in capsys.readouterr().err


def test_a_dump_of_empty_indexes_that_are_only_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / f"{'0' * 20}.log"
    log.write_bytes(batch(b"v", key=b"k"))
    index = log.with_suffix(".index")
    index.touch()
    times = log.with_suffix(".timeindex")
    times.touch()
    for only, said in (
        ("--verify-index-only", []),
        ("--index-sanity-check", [f"{times} passed sanity check."]),
    ):
        assert dump_log.main(("--files", f"{index},{times}", only)) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines == [f"Dumping {index}", f"{index} is empty.", f"Dumping {times}", *said]


def test_a_dump_of_a_torn_log_names_the_file_as_kafka_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / f"{'0' * 20}.log"
    log.write_bytes(bytes(batch(b"v", key=b"k")) + b"torn")
    assert dump_log.main(("--files", str(log))) == 3
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"Found 4 invalid bytes at the end of {log.name}"


USER = ("--alter", "--entity-type", "users", "--entity-name", "shop")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "producer_rate=5",
            "found producer_rate, expected SCRAM-SHA-256 or SCRAM-SHA-512, or quotas alone",
        ),
        (
            "SCRAM-SHA-512=[password=x],producer_byte_rate=5",
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users'",
        ),
        (
            "producer_byte_rate=soon",
            "Cannot parse quota configuration value for",
        ),
        ("SCRAM-SHA-1=[password=x]", "found SCRAM-SHA-1, expected"),
        ("SCRAM-SHA-512=x", "the value of SCRAM-SHA-512 must be [iterations=N,password=P]"),
        ("SCRAM-SHA-512=[iterations=many,password=x]", "must be [iterations=N,password=P]"),
    ],
)
def test_settings_of_users_that_are_refused(
    setting: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert configs.main((*SERVER, *USER, "--add-config", setting)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "password", "iterations"),
    [
        ("password=a,b=c", "a,b=c", 8_192),
        ("[password=a]", "a", 8_192),
        ("iterations=4096,password=a", "a", 4_096),
        ("[iterations=4096,password=iterations=1,password=b]", "iterations=1,password=b", 4_096),
    ],
)
def test_passwords_in_kafkas_spelling(value: str, password: str, iterations: int) -> None:
    found = credential_changes({"SCRAM-SHA-512": value, "SCRAM-SHA-256": None})
    new = found[Mechanism.SHA_512]
    assert new is not None and (new.password, new.iterations) == (password, iterations)
    assert found[Mechanism.SHA_256] is None
    assert "password=" not in repr(new)


def test_pitfall_23_a_failed_command_does_not_repeat_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kafka's tool prints its arguments when it fails. Ours must not, because they contain the
    password."""
    for value in (
        "SCRAM-SHA-512=[iterations=9,password=a canary]",
        "SCRAM-SHA-512[password=canary]",
        "SCRAM-SHA-1=[password=canary]",
        # Without brackets, a comma ends the value.
        "SCRAM-SHA-512=password=a,canary",
        "SCRAM-SHA-512=password=a,canary=b",
        "SCRAM-SHA-512=[password=a\ncanary],b",
    ):
        assert configs.main((*SERVER, *USER, "--add-config", value)) != 0
        said = capsys.readouterr()
        assert "canary" not in said.out + said.err
