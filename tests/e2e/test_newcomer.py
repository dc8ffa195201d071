"""A newcomer's first five minutes: six logs of well-known programs, dropped into the shipped mill.

The shipped configuration counts two of them. The other four are in folders that no input matches.
`status` prints a `detect` command for each of these. After that command the running mill counts
the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.mill import TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

NOTICED_S = 60.0
COUNTED_S = 60.0

NGINX_MAIN = """\
172.17.0.1 - - [28/Nov/2026:15:58:36 +0000] "GET / HTTP/1.1" 200 615 "-" "curl/8.5.0" "-"
172.17.0.1 - - [28/Nov/2026:15:58:37 +0000] "GET /x HTTP/1.1" 404 153 "-" "curl/8.5.0" "203.0.113.9"
"""
JOURNAL = """\
{"__REALTIME_TIMESTAMP":"1795879116113000","PRIORITY":"6","_COMM":"sshd","MESSAGE":"Accepted"}
{"__REALTIME_TIMESTAMP":"1795879117113000","PRIORITY":"3","_COMM":"cron","MESSAGE":"failed"}
"""
SPRING_BOOT = """\
2026-11-28T15:58:36.003Z  INFO 1 --- [shop] [           main] c.e.shop.App      : started
2026-11-28T15:58:37.003Z ERROR 1 --- [shop] [nio-8080-exec-1] c.e.shop.Orders   : no order 7
java.lang.IllegalStateException: no order 7
\tat com.example.shop.Orders.find(Orders.java:12)
\tat com.example.shop.Orders.show(Orders.java:34)
2026-11-28T15:58:38.003Z  WARN 1 --- [shop] [           main] c.e.shop.App      : slow
"""
KUBERNETES = """\
2026-11-28T15:58:36.123456789Z stdout F started
2026-11-28T15:58:37.123456789Z stdout P a long line that is
2026-11-28T15:58:37.123456790Z stderr F a warning between its parts
2026-11-28T15:58:37.123456791Z stdout F  cut in two
"""
POSTGRESQL = """\
2026-11-28 15:58:36.003 UTC,"ann","shop",12,"10.0.0.1:5000",66,1,"SELECT",2026-11-28 15:00:00 UTC,\
3/4,0,ERROR,42P01,"relation ""x"" does not exist",,,,,,"SELECT *
  FROM x",15,,"psql","client backend",,0
2026-11-28 15:58:37.003 UTC,"ann","shop",12,"10.0.0.1:5000",66,2,"SELECT",2026-11-28 15:00:00 UTC,\
3/5,0,LOG,00000,"duration: 12 ms",,,,,,,,,"psql","client backend",,0
"""
TRAEFIK = """\
10.0.0.9 - - [28/Nov/2026:15:58:36 +0000] "GET /a HTTP/1.1" 200 12 "-" "-" 1 "shop@docker" \
"http://172.18.0.3:80" 3ms
10.0.0.9 - ann [28/Nov/2026:15:58:37 +0000] "GET /b HTTP/2.0" 502 11 "-" "-" 2 "shop@docker" \
"http://172.18.0.3:80" 15ms
"""


@dataclass(frozen=True)
class Unknown:
    """A log that no input matches, its format, and the expected totals of one metric."""

    text: str
    line_format: str
    metric: str
    totals: dict[str, str]


UNKNOWN = {
    "shop": Unknown(
        SPRING_BOOT, "spring_boot", "shop_by_level", {"INFO": "1", "ERROR": "1", "WARN": "1"}
    ),
    "pods": Unknown(KUBERNETES, "cri", "pods_by_stream", {"stdout": "2", "stderr": "1"}),
    "pg": Unknown(POSTGRESQL, "postgresql_csv", "pg_by_error_severity", {"ERROR": "1", "LOG": "1"}),
    "edge": Unknown(TRAEFIK, "traefik", "edge_by_status", {"200": "1", "502": "1"}),
}


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TempMill]:
    with temp_mill(tmp_path_factory.mktemp("newcomer") / "mill") as made:
        made.up()
        yield made


def drop(mill: TempMill, name: str, text: str) -> None:
    path = mill.home.folder / "watched" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_what_the_shipped_configuration_counts(mill: TempMill) -> None:
    reading = Reading(mill)
    drop(mill, "access/nginx.log", NGINX_MAIN)
    drop(mill, "json/journal.log", JOURNAL)
    statuses = {"200": "1", "404": "1"}
    wait_until(
        lambda: reading.redis("mill:requests_by_status:all") == statuses, COUNTED_S, "nginx's log"
    )
    wait_until(lambda: reading.lines_of("json/journal.log") == 2, COUNTED_S, "the journal")


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_no_input_matches_is_named_and_counted_by_one_command(
    mill: TempMill, name: str
) -> None:
    reading, unknown = Reading(mill), UNKNOWN[name]
    file = f"watched/{name}/app.log"
    drop(mill, f"{name}/app.log", unknown.text)
    path = str(mill.home.folder / file)

    def named() -> bool:
        told = mill.run("status").out + mill.run("status").err
        return "detect" in told and f"{name}/app.log" in told

    wait_until(named, NOTICED_S, f"status names {file} and the command for it")
    wait_until(
        lambda: f"{name}/app.log" in reading.page("/collector"), NOTICED_S, "so does the page"
    )
    preview = reading.page(f"/preview?file={name}/app.log")
    assert f"<code>{unknown.line_format}</code>" in preview
    # Run `detect` with its checks by Spark only once, because they take half of its time.
    quick = [] if name == "shop" else ["--quick"]
    applied = mill.run("detect", path, "--apply", name, "--yes", *quick)
    assert applied.code == 0, applied.err
    assert unknown.line_format in applied.out
    wait_until(
        lambda: reading.redis(f"mill:{unknown.metric}:all") == unknown.totals,
        COUNTED_S,
        f"{file} is counted",
    )
    # The monitor must have read the changed file, too. Otherwise its page shows "value by key".
    by = unknown.metric.removeprefix(f"{name}_by_")
    wait_until(
        lambda: f"count by {by}, from" in reading.page(f"/counts/{unknown.metric}"),
        NOTICED_S,
        "the page describes the new metric",
    )


def test_undo_takes_the_lines_out_again(mill: TempMill) -> None:
    before = mill.home.config_file.read_bytes()
    drop(mill, "late/app.log", TRAEFIK)
    path = str(mill.home.folder / "watched" / "late" / "app.log")
    assert mill.run("detect", path, "--apply", "late", "--yes", "--quick").code == 0
    assert mill.home.config_file.read_bytes() != before
    undone = mill.run("detect", "--undo", "late", "--yes")
    assert undone.code == 0, undone.err
    assert mill.home.config_file.read_bytes() == before
