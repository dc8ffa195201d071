"""`doctor`: check everything that the mill depends on, and give a remedy for each problem."""

import os
import platform
import resource
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from appliance.checks import (
    certificates,
    changes,
    filling,
    growth,
    hosts,
    joined_host,
    opened,
    startup,
    topic_settings,
)
from appliance.checks.file_systems import mounts_of_this_process, watched_folders
from appliance.checks.redis_version import redis_version
from appliance.checks.startup import Check, CheckLevel
from appliance.cli import context
from appliance.cli.lag_command import ask_monitor
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import waiting
from appliance.cli.status_command import logs_hint, part_rows
from appliance.config.containers import LOOPBACK_ONLY, PUBLISHED_VARIABLE
from appliance.config.faults import ConfigFaults
from appliance.config.published import Published, published_of
from appliance.launch import native
from appliance.launch.servers import find_program
from appliance.mill.home import Home
from appliance.mill.settings import Mill
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, counted, print_json, print_table
from protocol.security.address import bracketed

FLUSH_SAMPLES = 60
FLUSH_P99_MS = 10.0
INOTIFY_WATCHES_MIN = 8_192
INOTIFY_INSTANCES_MIN = 64
OPEN_FILES_MIN = 4_096
MEMORY_BYTES_MIN = 3 << 30
PYTHON_MIN = (3, 11)


def doctor(
    as_json: EnvelopeOption = False,
) -> None:
    """Check this machine and this mill, with remedies; exit code 3 on a failure."""
    home = context.home()
    with waiting("looking at the machine and the mill"):
        found = [*_configuration(home), *_machine(home)]
    if as_json:
        print_json("doctor/1", [{**asdict(check), "level": str(check.level)} for check in found])
    else:
        rows = [[str(c.level), c.what, c.found, c.remedy] for c in found]
        print_table(["", "WHAT", "FOUND", "REMEDY"], rows)
    if any(check.level is CheckLevel.FAILED for check in found):
        raise typer.Exit(Exit.CONDITION)


def _configuration(home: Home) -> Iterator[Check]:
    """Check the configuration file, and everything that the mill needs for it."""
    try:
        mill, _ = context.load_mill(home)
    except ConfigFaults as error:
        for fault in error.faults:
            yield Check(CheckLevel.FAILED, "configuration", str(fault), "mend it")
        return
    yield Check(CheckLevel.OK, "configuration", str(home.config_file))
    yield _spark_memory(mill)
    if mill.placement.in_containers:
        yield from hosts.rows(mill)
        yield from _parts(*part_rows())
        yield opened.check(mill)
        yield from redis_version(mill)
        yield from growth.rows(mill)
        yield from topic_settings.rows(mill)
        yield from _from_monitor(mill)
    else:
        yield from startup.programs(mill)
        yield from _server_versions()
        yield from redis_version(mill)
        yield from startup.connector_jars(mill, check_sums=True)
        yield from startup.spark_master(mill)
        yield from hosts.rows(mill)
        yield from startup.data_ownership(mill)
        yield from startup.network(mill)
        yield _opened(mill)
        yield from certificates.ends(mill, datetime.now(UTC))
        yield from certificates.chain(mill)
        yield from _mill_state(mill)
        if lifecycle.is_running(home):
            yield from growth.rows(mill)
            yield from topic_settings.rows(mill)
            yield from _from_monitor(mill)
    yield from watched_folders(mill, mounts_of_this_process())
    yield from _published(mill)


def _opened(mill: Mill) -> Check:
    """Report what the running mill has open to other machines. `mill` is the mill of the file."""
    try:
        return opened.check(context.mill_as_it_runs())
    except ConfigFaults:
        return opened.check(mill)


def _mill_state(mill: Mill) -> Iterator[Check]:
    """Check whether the mill runs and report the state of its parts. Check its ports only if it is
    stopped."""
    if lifecycle.is_running(mill.home):
        yield Check(CheckLevel.OK, "mill", "runs; `./millrace status` shows its parts")
        yield from _parts(*part_rows())
        return
    from appliance.enrol.host_files import HostFiles
    from appliance.supervisor.children import leftovers

    try:
        host = HostFiles(mill.home).joined()
    except CommandError as error:
        yield Check(CheckLevel.FAILED, "collector", str(error))
        return
    if host is not None:
        yield from joined_host.collector(mill, host.name)
        return
    left = leftovers(mill.home)
    for name, record in left.items():
        found = f"process {record.pid} of an earlier run still runs, without a supervisor"
        yield Check(CheckLevel.WARNING, name, found, "`make up` or `make down` stops it")
    yield Check(CheckLevel.OK, "mill", "does not run")
    if not left:
        yield from startup.ports(mill)


def _from_monitor(mill: Mill) -> Iterator[Check]:
    """Report disks that fill up and open changes of the cluster, as the monitor knows them. If the
    monitor does not answer, `_parts` reports that."""
    try:
        disks = ask_monitor(mill, "/api/v1/disks")["data"]
        found = ask_monitor(mill, "/api/v1/changes")["data"]
    except CommandError:
        return
    yield from filling.disks(disks)
    yield from changes.advice(found)


def _parts(rows: list[dict[str, Any]], errors: list[str]) -> Iterator[Check]:
    """Report the parts of a running mill that are not healthy."""
    for error in errors:
        yield Check(CheckLevel.WARNING, "mill", error)
    for row in rows:
        if row["state"] != "healthy":
            found = f"{row['state']}: {row['reason']}" if row["reason"] else row["state"]
            if row.get("words"):
                found = f"{found}; its last message: {row['words']}"
            level = CheckLevel.FAILED if row["state"] == "failed" else CheckLevel.WARNING
            yield Check(level, row["part"], found, logs_hint(row["part"]))


def _published(mill: Mill) -> Iterator[Check]:
    """Check `MILLRACE_PUBLISHED`. With this variable parts may listen beyond the loopback, so its
    value must be true of the containers."""
    value = os.environ.get(PUBLISHED_VARIABLE)
    if value is None:
        return
    inside = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    if value != LOOPBACK_ONLY:
        text = f"{PUBLISHED_VARIABLE}={value}"
        remedy = f"the only value is `{LOOPBACK_ONLY}`"
        yield Check(CheckLevel.FAILED, "published ports", text, remedy)
    elif not inside:
        yield Check(
            CheckLevel.FAILED,
            "published ports",
            f"{PUBLISHED_VARIABLE}={value} outside of a container: parts would listen everywhere",
            "unset it; only the shipped compose file sets it",
        )
    else:
        yield Check(CheckLevel.OK, "published ports", _published_text())


def _published_text() -> str:
    """Return where compose publishes ports, and what a firewall does not do."""
    published, found = published_of(os.environ), "inside a container, published on loopback"
    if published is None or published == Published():
        return found
    if published.kafka is not None:
        found += f", NET at {bracketed(published.kafka[0])} from port {published.kafka[1]} on"
    if published.links is not None:
        found += f", BROKER from port {published.links[1]} on, of broker {published.broker} alone"
    if published.page is not None:
        found += f", the page at {bracketed(published.page[0])}, port {published.page[1]}"
    for name, (host, port) in published.servers.items():
        found += f", {opened.TITLES[name]} at {bracketed(host)}, port {port}"
    return f"{found}. Rules of ufw do not close ports that Docker publishes"


def _server_versions() -> Iterator[Check]:
    """Report the versions of the servers."""
    for what, names in (("Redis", ("redis-server",)), ("MySQL", ("mariadbd", "mysqld"))):
        program = find_program(*names)
        if program is None:
            continue
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
        line = (done.stdout or done.stderr).strip().splitlines()
        yield Check(CheckLevel.OK, f"{what} version", line[0][:100] if line else "unknown")


def _machine(home: Home) -> Iterator[Check]:
    version = ".".join(str(number) for number in sys.version_info[:3])
    good = sys.version_info >= PYTHON_MIN
    yield Check(CheckLevel.OK if good else CheckLevel.FAILED, "Python", version)
    yield Check(CheckLevel.OK, "system", f"{platform.system()} {platform.release()}")
    if not context.in_containers():
        # In containers each part has its own volume, which this container cannot see.
        yield from startup.disk_space(home)
        yield flush_latency(home.data if home.data.exists() else home.folder)
    yield from _compiled_code(home)
    yield from _limits()
    yield from _memory()
    yield from _secret_modes(home)


def _compiled_code(home: Home) -> Iterator[Check]:
    """Warn if the brokers cannot use the compiled code. Without compiled code there is no check."""
    found = native.find(home.code)
    if found is None:
        return
    if found.is_current:
        yield Check(CheckLevel.OK, "compiled code", str(found.folder))
        return
    yield Check(
        CheckLevel.WARNING,
        "compiled code",
        f"{found.folder} is of other sources or damaged, so brokers do not use it",
        "`make native` compiles these sources",
    )


def flush_latency(folder: Path, samples: int = FLUSH_SAMPLES) -> Check:
    """Measure how long the disk takes to make 4 KiB durable; every acknowledgement waits for
    that."""
    taken_ms = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(samples):
                os.write(file.fileno(), b"\0" * 4096)
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                taken_ms.append((time.perf_counter() - began) * 1000)
    except OSError as error:
        found = f"cannot be measured in {folder}: {error.strerror}"
        return Check(CheckLevel.WARNING, "disk flush", found)
    cuts = statistics.quantiles(taken_ms, n=100, method="inclusive")
    text = f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"
    if cuts[98] <= FLUSH_P99_MS:
        return Check(CheckLevel.OK, "disk flush", text)
    remedy = f"a p99 above {FLUSH_P99_MS:.0f} ms delays counts; use a faster disk"
    return Check(CheckLevel.WARNING, "disk flush", text, remedy)


def _limits() -> Iterator[Check]:
    """Check limits of the kernel and the account that a busy mill could reach."""
    for name, least in (
        ("max_user_watches", INOTIFY_WATCHES_MIN),
        ("max_user_instances", INOTIFY_INSTANCES_MIN),
    ):
        path = Path("/proc/sys/fs/inotify") / name
        try:
            value = int(path.read_text())
        except (OSError, ValueError):
            continue
        level = CheckLevel.OK if value >= least else CheckLevel.WARNING
        remedy = "" if value >= least else f"sysctl fs.inotify.{name}={least * 4}"
        yield Check(level, f"inotify {name}", str(value), remedy)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_MIN
    text = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    remedy = "" if enough else f"ulimit -n {OPEN_FILES_MIN}"
    yield Check(CheckLevel.OK if enough else CheckLevel.WARNING, "open files", text, remedy)


def _memory() -> Iterator[Check]:
    import psutil

    available = psutil.virtual_memory().available
    text = f"{available / (1 << 30):.1f} GiB available"
    if lifecycle.is_running(context.home()) or available >= MEMORY_BYTES_MIN:
        yield Check(CheckLevel.OK, "memory", text)
    else:
        remedy = "the mill needs about 2.5 GiB; stream.heap can be lowered to 512MiB"
        yield Check(CheckLevel.WARNING, "memory", text, remedy)


def _spark_memory(mill: Mill) -> Check:
    """Report the heap of Spark's driver on this machine, and the batch size that it allows."""
    from stream.spark.memory import heap_bytes, lines_per_batch, machine_bytes

    machine, section = machine_bytes(), mill.config.stream
    heap, lines = heap_bytes(section, machine), lines_per_batch(section, machine)
    told = "stream.heap" if section.heap is not None else "chosen by the memory of the machine"
    return Check(
        CheckLevel.OK,
        "Spark's heap",
        f"{heap >> 20} MiB ({told}), batches of up to {lines:,} lines",
    )


def _secret_modes(home: Home) -> Iterator[Check]:
    """Check that secrets are readable by their owner only."""
    if not home.secrets.exists():
        return
    open_files = []
    try:
        for path in sorted(home.secrets.rglob("*")):
            if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077:
                open_files.append(str(path))
    except PermissionError:
        yield Check(
            CheckLevel.OK, "secrets", "they belong to other accounts, and this one cannot read them"
        )
        return
    if open_files:
        remedy = f"chmod 600 {' '.join(open_files)}"
        found = f"other users can read {counted(len(open_files), 'file')}"
        yield Check(CheckLevel.FAILED, "secrets", found, remedy)
    else:
        yield Check(CheckLevel.OK, "secrets", "only their owner can read them")
