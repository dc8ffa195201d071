"""The contents of a backup, and the files that each round has to copy."""

import pytest

from appliance.backup.plan import (
    SETTLED_NS,
    CopiedFile,
    Copy,
    Extend,
    FileStamp,
    Remove,
    Step,
    WholeBatches,
    active_logs,
    belongs,
    steps,
)

NOW_NS = 10 * SETTLED_NS
OLD = FileStamp(1, 7, 1_000, NOW_NS - 2 * SETTLED_NS, NOW_NS - 2 * SETTLED_NS)
LOG = "broker-1/t-0/00000000000000000000.log"
NEXT = "broker-1/t-0/00000000000000000090.log"


@pytest.mark.parametrize(
    ("path", "is_kept"),
    [
        ("broker-1/t-0/00000000000000000000.log", True),
        ("broker-1/meta.properties", True),
        ("broker-1/.running", True),
        ("broker-1/.reserve", False),
        ("broker-1/.lock", False),
        ("broker-1.moving", False),
        ("broker-1.moved/t-0/00000000000000000000.log", False),
        ("broker-1.copying", False),
        ("broker-1/moved.moved-0/00000000000000000000.log", True),
        ("collector/instance", True),
        ("collector/collector.lock", False),
        ("stream/checkpoint/offsets/7", True),
        ("stream/scratch/blockmgr/1", False),
        ("stream/lock", False),
        ("secrets/mysql/root", True),
        ("archive/logs.access/00000001.parquet", True),
        ("mysql/db/ibdata1", False),
        ("mysql", False),
        ("monitor/history.db-wal", False),
        ("logs/broker-1.log", False),
        ("run/millrace.yaml", False),
        ("supervisor.lock", False),
    ],
)
def test_what_belongs_to_a_backup(path: str, is_kept: bool) -> None:
    assert belongs(path, with_redis=False) is is_kept


@pytest.mark.parametrize(
    ("path", "is_kept"),
    [
        ("broker-1", False),
        ("broker-1/t-0/00000000000000000000.log", False),
        ("stream/checkpoint/offsets/7", False),
        ("stream/checkpoint.given-up/offsets/7", False),
        ("stream/suspects.json", True),
        ("collector/instance", True),
        ("secrets/broker-1/key.pem", True),
        ("secrets/ca/ca.key", True),
        ("archive/logs.access/00000001.parquet", True),
        ("mysql", False),
    ],
)
def test_a_backup_of_the_main_host_has_no_logs_and_no_checkpoint(path: str, is_kept: bool) -> None:
    assert belongs(path, with_redis=False, with_brokers=False) is is_kept


def test_redis_belongs_to_it_where_it_is_the_only_sink() -> None:
    path = "redis/appendonlydir/appendonly.aof.1.incr.aof"
    assert belongs(path, with_redis=True)
    assert not belongs(path, with_redis=False)


def test_only_the_last_segment_of_a_log_grows() -> None:
    other = "broker-1/u-0/00000000000000000000.log"
    assert active_logs([NEXT, LOG, other, "broker-1/u-0/leader-epoch-checkpoint"]) == {NEXT, other}


def round_of(copied: dict[str, CopiedFile], **seen: FileStamp) -> list[Step]:
    names = {"log": LOG, "next": NEXT, "instance": "collector/instance"}
    return steps(copied, {names[name]: found for name, found in seen.items()})


def test_what_was_not_copied_is_copied() -> None:
    assert round_of({}, instance=OLD, log=OLD, next=OLD) == [
        Copy(LOG, is_active=False),
        Copy(NEXT, is_active=True),
        Copy("collector/instance", is_active=False),
    ]


def test_what_has_not_changed_is_left_alone() -> None:
    assert round_of({"collector/instance": CopiedFile(OLD, NOW_NS)}, instance=OLD) == []


@pytest.mark.parametrize(
    "now",
    [
        OLD._replace(size_bytes=1_001),
        OLD._replace(inode=8),
        OLD._replace(device=2),
        OLD._replace(mtime_ns=OLD.mtime_ns + 1),
        # A change of permissions or of the name changes only `ctime_ns`.
        OLD._replace(ctime_ns=OLD.ctime_ns + 1),
    ],
)
def test_what_has_changed_is_copied_again(now: FileStamp) -> None:
    found = round_of({"collector/instance": CopiedFile(OLD, NOW_NS)}, instance=now)
    assert found == [Copy("collector/instance", is_active=False)]


def test_what_changed_just_before_it_was_looked_at_may_have_changed_again_unseen() -> None:
    fresh = OLD._replace(mtime_ns=NOW_NS - SETTLED_NS, ctime_ns=NOW_NS - SETTLED_NS)
    found = round_of({"collector/instance": CopiedFile(fresh, NOW_NS)}, instance=fresh)
    assert found == [Copy("collector/instance", is_active=False)]
    settled = fresh._replace(mtime_ns=fresh.mtime_ns - 1, ctime_ns=fresh.ctime_ns - 1)
    assert round_of({"collector/instance": CopiedFile(settled, NOW_NS)}, instance=settled) == []


def test_of_a_log_that_grows_only_what_is_new_is_copied() -> None:
    whole = WholeBatches(end=900, last=800)
    longer = OLD._replace(size_bytes=2_000, mtime_ns=NOW_NS)
    assert round_of({LOG: CopiedFile(OLD, NOW_NS, whole)}, log=longer) == [Extend(LOG, whole)]


@pytest.mark.parametrize("now", [OLD._replace(size_bytes=899), OLD._replace(inode=8)])
def test_a_log_that_was_cut_or_replaced_is_copied_again(now: FileStamp) -> None:
    copied = {LOG: CopiedFile(OLD, NOW_NS, WholeBatches(end=900, last=800))}
    assert round_of(copied, log=now) == [Copy(LOG, is_active=True)]


def test_what_is_gone_is_removed() -> None:
    assert round_of({LOG: CopiedFile(OLD, NOW_NS)}, next=OLD) == [Copy(NEXT, True), Remove(LOG)]
