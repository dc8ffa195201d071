"""The parts of the cluster commands that need no cluster: lines, offsets, tables and times."""

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.cli.consume_command import beginning_of, json_of, pieces_of
from appliance.dump.lines import left_line
from appliance.kafka.configs import parse_settings
from appliance.kafka.consume import BatchOfRecord, BeginAt, Beginning, ReadRecord
from appliance.kafka.groups import Group, GroupRow
from appliance.kafka.lines import LineFault, LineFormat, parse_line
from appliance.kafka.moments import moment_ms, offset_time
from appliance.kafka.offsets import filter_of_ranges
from appliance.kafka.reset import read_plan, split_scope, target_of
from appliance.kafka.topics import Matcher, PartitionFilter, assignments_of
from appliance.kafka_tools.base import UsageFault, properties_of, read_properties
from appliance.kafka_tools.console_consumer import Formatter
from appliance.kafka_tools.group_reset import duration_ms
from appliance.kafka_tools.group_reset import moment_ms as exact_ms
from appliance.kafka_tools.group_tables import members_table, offsets_table, state_table
from appliance.kafka_tools.topics import partition_line
from appliance.output import CommandError, Exit
from protocol.client.admin_types import GroupDescription, MemberDescription
from protocol.client.consumer_settings import ConsumerRecord
from protocol.client.fetch_core import BatchOrigin, FetchedBatch
from protocol.client.group_offset_reset import Bounds, NothingCommitted, ResetTarget, To, new_offset
from protocol.client.topic_details import PartitionDetails, TopicDetails
from protocol.types import ZERO_UUID, TopicPartition
from protocol.wire.record import Record
from tests.unit.storage.kit import batch

TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("line", "form", "expected"),
    [
        (b"plain", LineFormat(), (None, b"plain", ())),
        (b"k\tv\tw", LineFormat(parse_key=True), (b"k", b"v\tw", ())),
        (b"k:v", LineFormat(parse_key=True, key_separator=":"), (b"k", b"v", ())),
        (
            b"a:1,b:2\tk\tv",
            LineFormat(parse_key=True, parse_headers=True),
            (b"k", b"v", (("a", b"1"), ("b", b"2"))),
        ),
        (
            b"a:N\tN\tN",
            LineFormat(parse_key=True, parse_headers=True, null_marker="N"),
            (None, None, (("a", None),)),
        ),
        (b"N\tv", LineFormat(parse_headers=True, null_marker="N"), (None, b"v", ())),
        (b"v", LineFormat(parse_key=True, ignore_error=True), (None, b"v", ())),
        (b"\xff\t\xfe", LineFormat(parse_key=True), (b"\xff", b"\xfe", ())),
    ],
)
def test_lines_are_divided(line: bytes, form: LineFormat, expected: object) -> None:
    found = parse_line(line, 1, form)
    assert (found.key, found.value, found.headers) == expected


@pytest.mark.parametrize(
    ("line", "form", "words"),
    [
        (b"v", LineFormat(parse_key=True), "No key separator found on line number 7: 'v'"),
        (b"v", LineFormat(parse_headers=True), "No headers delimiter found on line number 7"),
        (b"a\tv", LineFormat(parse_headers=True), "No header key separator found in pair 'a'"),
        (b"N:1\tv", LineFormat(parse_headers=True, null_marker="N"), "null marker 'N'"),
    ],
)
def test_lines_of_another_form_are_refused(line: bytes, form: LineFormat, words: str) -> None:
    with pytest.raises(LineFault, match=words):
        parse_line(line, 7, form)


@pytest.mark.parametrize(
    "given",
    [
        {"key_separator": "|", "null_marker": "|"},
        {"headers_separator": ":"},
        {"key_separator": ""},
    ],
)
def test_separators_that_cannot_be_told_apart_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="may not be"):
        LineFormat(**given)  # type: ignore[arg-type]


BOUNDS = Bounds(start=10, end=50, current=20, at_time=30)


@pytest.mark.parametrize(
    ("target", "bounds", "offset", "note"),
    [
        (ResetTarget(To.EARLIEST), BOUNDS, 10, ""),
        (ResetTarget(To.LATEST), BOUNDS, 50, ""),
        (ResetTarget(To.CURRENT), BOUNDS, 20, ""),
        (ResetTarget(To.CURRENT), Bounds(10, 50, None), 50, ""),
        (ResetTarget(To.TIME), BOUNDS, 30, ""),
        (ResetTarget(To.TIME), Bounds(10, 50, 20), 50, "Falling back to latest known offset"),
        (ResetTarget(To.SHIFT, 5), BOUNDS, 25, ""),
        (ResetTarget(To.SHIFT, -50), BOUNDS, 10, "(-30) is lower than earliest"),
        (ResetTarget(To.SHIFT, 50), BOUNDS, 50, "(70) is higher than latest"),
        (ResetTarget(To.OFFSET, 12), BOUNDS, 12, ""),
        (ResetTarget(To.PLAN, plan={TP: 99}), BOUNDS, 50, "(99) is higher than latest"),
    ],
)
def test_where_a_group_goes_on(target: ResetTarget, bounds: Bounds, offset: int, note: str) -> None:
    notes: list[str] = []
    assert new_offset(TP, target, bounds, notes.append) == offset
    assert [note in one for one in notes] == ([True] if note else [])


def test_nothing_shifts_from_nowhere() -> None:
    with pytest.raises(NothingCommitted, match="no current committed offset"):
        new_offset(TP, ResetTarget(To.SHIFT, 1), Bounds(0, 5, None), print)


def test_wishes_and_scopes_are_read() -> None:
    words = ("start", "end", "12", "+3", "-3")
    assert [target_of(word) for word in words] == [
        ResetTarget(To.EARLIEST),
        ResetTarget(To.LATEST),
        ResetTarget(To.OFFSET, 12),
        ResetTarget(To.SHIFT, 3),
        ResetTarget(To.SHIFT, -3),
    ]
    assert target_of("2026-08-01T10:00Z") == ResetTarget(To.TIME, 1_785_578_400_000)
    assert split_scope("t") == ("t", None)
    assert split_scope("t:0,2") == ("t", [0, 2])
    with pytest.raises(CommandError, match="topic:0,1"):
        split_scope("t:x")
    plan = read_plan(["t,0,5", '"a,b",1,6', "", "g2,t,0,7"], ["g"])
    assert plan == {"g": {TP: 5, TopicPartition("a,b", 1): 6}, "g2": {TP: 7}}
    with pytest.raises(CommandError, match="line 1"):
        read_plan(["t,0"], ["g"])


def test_times_are_read() -> None:
    assert moment_ms("1h", now_ms=7_200_000) == 3_600_000
    assert moment_ms("123") == 123
    assert [offset_time(word) for word in ("start", "end", "max")] == [-2, -1, -3]
    for wrong in ("soon", "9223372036854775808"):
        with pytest.raises(CommandError, match="a duration ago"):
            moment_ms(wrong)
    # A time before 1970 becomes 0, because ListOffsets takes -1 and -2 for the ends of a log.
    assert moment_ms("1d", now_ms=86_399_998) == 0
    assert duration_ms("P1DT2H3M4.5S") == 93_784_500
    assert duration_ms("-PT1S") == -1000
    for wrong in ("P", "PT", "1h", "P1M"):
        with pytest.raises(CommandError, match="PnDTnHnMnS"):
            duration_ms(wrong)
    assert exact_ms("1970-01-01T00:00:01.500") == 1500
    assert exact_ms("1970-01-01T01:00:00.000+01") == 0
    assert exact_ms("1970-01-01T01:00:00.000+0100") == 0
    with pytest.raises(CommandError):
        exact_ms("1970-01-01T00:00:00")


def test_ranges_of_partitions() -> None:
    is_meant = filter_of_ranges("t:1,u:0-2,v,w:5-,:-1")
    tps = [TopicPartition(name, number) for name in "tuvwx" for number in (0, 1, 2, 5, 9)]
    assert [str(tp) for tp in tps if is_meant(tp)] == [
        *("t-0", "t-1", "u-0", "u-1", "v-0", "v-1", "v-2", "v-5", "v-9", "w-0", "w-5", "w-9"),
        "x-0",
    ]
    with pytest.raises(CommandError, match="Invalid rule"):
        filter_of_ranges("t:a")


def test_settings_assignments_and_patterns() -> None:
    assert parse_settings("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    with pytest.raises(CommandError):
        parse_settings("a")
    assert assignments_of("1:2,2:3") == ((1, 2), (2, 3))
    for wrong in ("1:1", "a"):
        with pytest.raises(CommandError):
            assignments_of(wrong)
    assert [Matcher("a.*,b")(name) for name in ("abc", "b", "bb")] == [True, True, False]
    with pytest.raises(CommandError, match=r"^\( is an invalid regex\.$"):
        Matcher("(")


def test_problems_of_partitions() -> None:
    def part(leader: int | None, isr: tuple[int, ...]) -> PartitionDetails:
        return PartitionDetails(0, leader, 0, (1, 2, 3), isr, (), (), ())

    whole, thin, led_by_nobody = part(1, (1, 2, 3)), part(1, (1, 2)), part(None, (3,))
    gone = part(9, (1, 2, 3))
    for problem, expected in (
        (PartitionFilter(under_replicated=True), [False, True, True, False]),
        (PartitionFilter(unavailable=True), [False, False, True, True]),
        (PartitionFilter(at_min_isr=True), [False, True, False, False]),
        (PartitionFilter(under_min_isr=True), [False, False, True, False]),
    ):
        found = [problem.has(one, 2, {1, 2, 3}) for one in (whole, thin, led_by_nobody, gone)]
        assert found == expected, problem


def test_replicas_that_a_reassignment_adds_are_no_problem() -> None:
    """KIP-352: an added replica is not in sync yet. The partition is not under-replicated because
    of it."""
    moving = PartitionDetails(0, 1, 0, (1, 2, 3), (1,), (), (), (), (2, 3), ())
    for flag in ("under_replicated", "under_min_isr"):
        problem = PartitionFilter(**{flag: True})
        assert not problem.has(moving, 2, {1, 2, 3})
        assert problem.has(replace(moving, adding_replicas=()), 2, {1, 2, 3})
    topic = TopicDetails("t", ZERO_UUID, False, (moving,))
    assert topic.replication_factor == 1


def test_kafka_topics_names_the_replicas_that_move() -> None:
    still = PartitionDetails(0, 1, 0, (1, 2), (1, 2), (), (), ())
    moving = replace(still, replicas=(3, 1, 2), adding_replicas=(3,), removing_replicas=(2,))
    assert partition_line("t", moving).split("\t")[4:] == [
        "Replicas: 3,1,2", "Isr: 1,2", "Adding Replicas: 3", "Removing Replicas: 2", "Elr: ",
        "LastKnownElr: ",
    ]  # fmt: skip
    assert "Adding" not in partition_line("t", still)


def test_tables_of_a_group_with_members() -> None:
    member = MemberDescription(
        "member-with-a-long-name", "client", "/127.0.0.1", "static", b"", b""
    )
    idle = MemberDescription("idle", "client", "/127.0.0.1", None, b"", b"")
    one = GroupDescription("g", "Stable", "consumer", "range", (member, idle), 2)
    row = GroupRow("g", "t", 0, 3, 5, 4, member)
    group = Group(one, {member.member_id: frozenset({TP}), "idle": frozenset()}, (row,))
    assert row.lag is None
    assert row.is_past_end
    lines = offsets_table(group, verbose=False)
    assert lines[0].split()[:4] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET"]
    assert lines[1] == (
        "g               t               0          5               4               -             "
        "  member-with-a-long-name /127.0.0.1      client"
    )
    assert lines[2].split() == ["g", *"-" * 5, "idle", "/127.0.0.1", "client"]
    assert offsets_table(group, verbose=True)[1].split()[3] == "3"
    shown = members_table(group, verbose=True)
    assert shown[0].split()[2] == "GROUP-INSTANCE-ID"
    assert shown[1].split() == [
        *("g", "member-with-a-long-name", "static", "/127.0.0.1", "client", "1", "-", "t:0"),
        *("-", "-"),
    ]
    assert state_table(group, "h:1  (2)", verbose=False)[1].split()[-2:] == ["Stable", "2"]


def read_record(key: bytes | None = b"k", value: bytes | None = b"v") -> ReadRecord:
    record = ConsumerRecord("t", 1, 7, 1_785_578_400_123, key, value, (("h", b"x"), ("n", None)))
    return ReadRecord(record, 4, True)


def test_a_record_is_printed_as_kafka_does() -> None:
    everything = Formatter(True, True, True, True, True, True, True, True, null=b"NIL")
    assert everything.line(read_record(None)) == (
        b"LogAppendTime:1785578400123\tPartition:1\tOffset:7\tDelivery:NOT_PRESENT\tEpoch:4\t"
        b"h:x,n:NIL\tNIL\tv\n"
    )
    assert Formatter().line(read_record(value=b"\xff")) == b"\xff\n"


def test_forms_of_ones_own_and_json() -> None:
    assert pieces_of(r"%t\t%%%s\n") == ["t", b"\t", b"%", "s", b"\n"]
    with pytest.raises(CommandError, match="found %z"):
        pieces_of("%z")
    found = json_of(read_record(value=b"\xff"))
    assert (found["value"], found["value_base64"], found["key"]) == ("/w==", True, "k")
    assert found["timestamp"] == "2026-08-01T10:00:00.123Z"
    assert found["leader_epoch"] == 4
    assert beginning_of("-5") == Beginning(BeginAt.LAST, 5)
    assert beginning_of("@123") == Beginning(BeginAt.TIME, 123)
    with pytest.raises(CommandError):
        beginning_of("somewhere")


def test_a_record_finds_its_batch() -> None:
    origins = BatchOfRecord()
    records = [Record(offset, 0, None, b"", (), -1) for offset in (3, 4, 5)]
    batches = [BatchOrigin(3, 1, False), BatchOrigin(6, 2, True)]
    origins.note([FetchedBatch(TP, 9, records, 7, 9, 0, batches)])
    found = [
        origins.of(ConsumerRecord("t", 0, record.offset, 0, None, b"", ())) for record in records
    ]
    assert [(one.leader_epoch, one.is_log_append_time) for one in found] == [
        (1, False),
        (2, True),
        (2, True),
    ]


def test_java_properties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# words\nclient.id = me\nssl.keystore.location: x\\\n  y\nretries=3\n")
    assert read_properties(str(path)) == {
        "client.id": "me",
        "ssl.keystore.location": "xy",
        "retries": "3",
    }
    assert "ssl.keystore.location has no effect" in capsys.readouterr().err
    path.write_text("security.protocol=SASL_SSL\n")
    with pytest.raises(CommandError, match="PLAINTEXT only") as raised:
        read_properties(str(path))
    assert raised.value.code == Exit.USAGE
    assert read_properties(None) == {}
    with pytest.raises(UsageFault):
        properties_of(["a"])


def test_zeros_behind_the_last_batch_are_not_told_as_damage() -> None:
    whole = bytes(batch(b"v"))
    assert left_line(memoryview(whole + bytes(100)), "f") is None
    assert left_line(memoryview(whole + b"x" * 7), "f") == "Found 7 invalid bytes at the end of f"
