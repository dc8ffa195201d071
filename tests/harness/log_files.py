"""Generated log files of many kinds with their formats, and files that are not logs."""

import base64
import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

FIXTURES = Path(__file__).parents[1] / "fixtures" / "formats"
GARBAGE = ("-- MARK --", "Segmentation fault (core dumped)", "*** end of boot ***", "}{ %% ??")
JAVA_TRACE = (
    "java.lang.IllegalStateException: no session",
    "\tat com.example.shop.Cart.add(Cart.java:42)",
    "\tat com.example.shop.Api.call(Api.java:7)",
    "Caused by: java.io.IOException: closed",
    "\t... 12 more",
)
PYTHON_TRACE = (
    "Traceback (most recent call last):",
    '  File "app/cart.py", line 12, in add',
    "    session = sessions[key]",
    "KeyError: 'k'",
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file's name, content and format. The format is None for a file that is not a log."""

    name: str
    data: bytes
    format: str | None

    @property
    def kind(self) -> str:
        """Return the name up to the first dot. What follows names the change made to the file."""
        return self.name.partition(".")[0]


def sample_lines(name: str) -> list[str]:
    """Return realistic lines of a shipped format. An event of several lines becomes several
    entries."""
    rows = (FIXTURES / f"{name}.jsonl").read_text().removesuffix("\n").split("\n")
    return [line for row in rows for line in json.loads(row)[0].split("\n")]


def shipped_kinds() -> list[str]:
    """Return the formats that have sample lines."""
    return sorted(path.stem for path in FIXTURES.glob("*.jsonl"))


def text(lines: Sequence[str], newline: str = "\n") -> bytes:
    return "".join(f"{line}{newline}" for line in lines).encode()


def with_garbage(lines: Sequence[str]) -> list[str]:
    """Insert a line that matches no format after every tenth line."""
    found = []
    for at, line in enumerate(lines):
        found.append(line)
        if at % 10 == 9:
            found.append(GARBAGE[at // 10 % len(GARBAGE)])
    return found


def with_traces(lines: Sequence[str], trace: Sequence[str]) -> list[str]:
    """Insert a stack trace after every fourth line."""
    return [
        one for at, line in enumerate(lines) for one in ((line, *trace) if at % 4 == 3 else (line,))
    ]


def made_lines(seed: int = 7, count: int = 120) -> dict[str, list[str]]:
    """Return generated lines of twenty-five kinds that the fixtures do not have. The key is the
    format and the kind."""
    chance = random.Random(seed)
    return {kind: [make(chance, at) for at in range(count)] for kind, make in MAKERS.items()}


def _clock(at: int) -> str:
    return f"{at // 60 % 24:02d}:{at % 60:02d}:{at * 7 % 60:02d}"


def _ip(chance: random.Random) -> str:
    return f"203.0.113.{chance.randrange(1, 255)}"


def _pick(chance: random.Random, *values: str) -> str:
    return chance.choice(values)


def _combined(chance: random.Random, at: int) -> str:
    path = _pick(chance, "/", "/cart?id=7", "/img/logo.png", "/api/v1/items/17", "/%C3%A9")
    return (
        f"{_ip(chance)} - {_pick(chance, '-', 'ann')} [03/Mar/2025:{_clock(at)} +0100]"
        f' "{_pick(chance, "GET", "POST", "HEAD")} {path} HTTP/2.0"'
        f" {_pick(chance, '200', '304', '404', '500')} {chance.randrange(50_000)}"
        f' "https://example.org/?q=a b" "Mozilla/5.0 (X11; Linux x86_64) \\"x\\""'
    )


def _haproxy(chance: random.Random, at: int) -> str:
    return (
        f"Mar  3 {_clock(at)} edge1 haproxy[771]: {_ip(chance)}:51234"
        f" [03/Mar/2025:{_clock(at)}.{at % 1000:03d}] web~ app/app{at % 3}"
        f" 0/0/1/{chance.randrange(900)}/{chance.randrange(900, 1800)}"
        f" {_pick(chance, '200', '503')} {chance.randrange(9_000)} - - ---- 3/3/0/0/0 0/0"
        f' "GET /checkout HTTP/1.1"'
    )


def _spring(chance: random.Random, at: int) -> str:
    return (
        f"2025-03-03T{_clock(at)}.{at % 1000:03d}Z  {_pick(chance, 'INFO', 'WARN')} 4711 ---"
        f" [nio-8080-exec-{at % 8}] c.example.shop.CartController           : added item {at}"
    )


def _postgresql(chance: random.Random, at: int) -> str:
    return (
        f"2025-03-03 {_clock(at)}.{at % 1000:03d} CET [{4000 + at}] shop@orders"
        f" {_pick(chance, 'LOG', 'ERROR', 'STATEMENT')}:  duration: {chance.random() * 90:.3f} ms"
    )


def _nginx_error(chance: random.Random, at: int) -> str:
    return (
        f"2025/03/03 {_clock(at)} [{_pick(chance, 'error', 'warn')}] 31#31: *{at} connect() failed"
        f" (111: Connection refused), client: {_ip(chance)}, server: _, request:"
        f' "GET /x HTTP/1.1"'
    )


def _json(chance: random.Random, at: int) -> str:
    return json.dumps(
        {
            "ts": f"2025-03-03T{_clock(at)}.{at % 1000:03d}Z",
            "level": _pick(chance, "info", "warn", "error"),
            "http": {"status": chance.choice((200, 404)), "path": f"/p/{at % 9}"},
            "took_ms": chance.random() * 100,
            "ok": chance.random() < 0.9,
            "bytes": chance.randrange(1 << 34),
            "zip": f"0{at % 1000:04d}",
        }
    )


def _logfmt(chance: random.Random, at: int) -> str:
    return (
        f"time=2025-03-03T{_clock(at)}Z level={_pick(chance, 'info', 'warn')}"
        f' msg="sent mail {at}" duration={chance.random():.3f} attempts={at % 4} ok=true'
    )


def _csv(chance: random.Random, at: int) -> str:
    return (
        f"2025-03-03 {_clock(at)},{_pick(chance, 'DE', 'FR', 'IT')},{chance.randrange(9)},"
        f'{chance.random() * 80:.2f},"a, ""b""",{_pick(chance, "true", "false")}'
    )


def _regex(chance: random.Random, at: int) -> str:
    level = _pick(chance, "INFO", "WARN", "ERROR")
    return (
        f"[2025-03-03 {_clock(at)},{at % 1000:03d}] [{level}] [worker-{at % 4}]"
        f" billing.invoice: invoice={1000 + at} took {chance.randrange(900)} ms"
    )


MAKERS: dict[str, Callable[[random.Random, int], str]] = {
    "combined": _combined,
    "common": lambda chance, at: (
        f"{_ip(chance)} - - [03/Mar/2025:{_clock(at)} +0000]"
        f' "GET /p{at % 7} HTTP/1.1" {_pick(chance, "200", "404")} {at * 17}'
    ),
    "haproxy_http": _haproxy,
    "spring_boot": _spring,
    "postgresql_stderr": _postgresql,
    "nginx_error": _nginx_error,
    "json": _json,
    "logfmt": _logfmt,
    "csv": _csv,
    "regex": _regex,
    "syslog": lambda chance, at: (
        f"Mar {at % 28 + 1:2d} {_clock(at)} {_pick(chance, 'web1', 'db2')}"
        f" {_pick(chance, 'sshd', 'cron', 'systemd')}[{at + 1}]: session opened for user ann"
    ),
    "klog": lambda chance, at: (
        f"{_pick(chance, *'IWE')}0303 {_clock(at)}.{at:06d}       1"
        f' reconciler.go:{at + 1}] "Started volume" pod="kube-system/dns-{at}"'
    ),
    "log4j": lambda chance, at: (
        f"2025-03-03 {_clock(at)},{at % 1000:03d} {_pick(chance, 'INFO ', 'ERROR')}"
        f" [main] org.example.Main - step {at}"
    ),
    "logback": lambda chance, at: (
        f"2025-03-03 {_clock(at)}.{at % 1000:03d} [http-{at % 4}] {_pick(chance, 'INFO ', 'WARN ')}"
        f" org.example.Api - GET /items took {at}"
    ),
    "python_logging": lambda chance, at: (
        f"2025-03-03 {_clock(at)},{at % 1000:03d} - shop.cart -"
        f" {_pick(chance, 'INFO', 'WARNING', 'ERROR')} - item {at} added"
    ),
    "redis": lambda chance, at: (
        f"{771}:{_pick(chance, 'M', 'C')} 03 Mar 2025 {_clock(at)}.{at % 1000:03d}"
        f" {_pick(chance, *'*#-')} DB saved on disk"
    ),
    "mongodb": lambda chance, at: (
        f'{{"t":{{"$date":"2025-03-03T{_clock(at)}.001+00:00"}},"s":"I",'
        f'"c":"{_pick(chance, "NETWORK", "COMMAND")}","id":{22_900 + at},"ctx":"conn{at}",'
        f'"msg":"Slow query","attr":{{"ns":"shop.items","durationMillis":{at}}}}}'
    ),
    "mysql_error": lambda chance, at: (
        f"2025-03-03T{_clock(at)}.{at:06d}Z {at} [{_pick(chance, 'Note', 'Warning')}]"
        f" [MY-0{10_000 + at}] [Server] Access denied for user 'x'@'localhost'"
    ),
    "apache_error": lambda chance, at: (
        f"[Mon Mar 03 {_clock(at)}.{at:06d} 2025] [{_pick(chance, 'ssl', 'core')}:"
        f"{_pick(chance, 'warn', 'error')}] [pid {at + 1}:tid 140001] [client {_ip(chance)}:5000]"
        f" AH00126: Invalid URI in request {at}"
    ),
    "cri": lambda chance, at: (
        f"2025-03-03T{_clock(at)}.{at:09d}Z {_pick(chance, 'stdout', 'stderr')} F item {at} added"
    ),
    "docker_json": lambda chance, at: json.dumps(
        {
            "log": f"item {at} added\n",
            "stream": _pick(chance, "stdout", "stderr"),
            "time": f"2025-03-03T{_clock(at)}.{at:09d}Z",
        },
        separators=(",", ":"),
    ),
    "java_gc": lambda chance, at: (
        f"[2025-03-03T{_clock(at)}.{at % 1000:03d}+0100][{at}.015s][info][gc] GC({at})"
        f" Pause Young (Normal) (G1 Evacuation Pause) {at + 9}M->{at}M(512M)"
        f" {chance.random() * 9:.3f}ms"
    ),
    "php_fpm": lambda chance, at: (
        f"[03-Mar-2025 {_clock(at)}] {_pick(chance, 'NOTICE', 'WARNING')}: [pool www] child {at}"
        f" exited with code 0"
    ),
    "vhost_combined": lambda chance, at: (
        f"shop.example.org:443 {_ip(chance)} - - [03/Mar/2025:{_clock(at)} +0000]"
        f' "GET /a{at} HTTP/1.1" 200 {at} "-" "curl/8.5"'
    ),
    "cef": lambda chance, at: (
        f"CEF:0|Acme|Wall|2.1|{at}|Connection dropped|{at % 10}|src={_ip(chance)}"
        f" dst=198.51.100.7 spt={at + 1024} rt={1_741_000_000_000 + at * 1000}"
    ),
}
CSV_HEADER = "when,country,items,price,comment,paid"


def log_files() -> Iterator[LogFile]:
    """Yield log files of all kinds, plain and changed in ways that occur on real machines."""
    for kind in shipped_kinds():
        yield LogFile(f"{kind}.samples.log", text(sample_lines(kind)), kind)
    made = made_lines()
    for kind, lines in made.items():
        first = [CSV_HEADER] if kind == "csv" else []
        yield LogFile(f"{kind}.made.log", text([*first, *lines]), kind)
        if kind != "csv":
            yield LogFile(f"{kind}.garbage.log", text(with_garbage(lines)), kind)
    yield from _shapes(made)


def _shapes(made: dict[str, list[str]]) -> Iterator[LogFile]:
    combined, spring = made["combined"], made["spring_boot"]
    yield LogFile("combined.gz", gzip.compress(text(combined), mtime=0), "combined")
    zstd = zstandard.ZstdCompressor().compress(text(made["syslog"]))
    yield LogFile("syslog.zst", zstd, "syslog")
    yield LogFile("log4j.utf16.log", text(made["log4j"]).decode().encode("utf-16"), "log4j")
    no_mark = text(made["redis"]).decode().encode("utf-16-le")
    yield LogFile("redis.utf16le.log", no_mark, "redis")
    yield LogFile("json.bom.log", b"\xef\xbb\xbf" + text(made["json"]), "json")
    yield LogFile("haproxy_http.crlf.log", text(made["haproxy_http"], "\r\n"), "haproxy_http")
    yield LogFile("klog.end.log", text(made["klog"]).rstrip(b"\n"), "klog")
    western = [line.replace("added", "ajouté") for line in made["python_logging"]]
    data = text(western).decode().encode("windows-1252")
    yield LogFile("python_logging.western.log", data, "python_logging")
    coloured = [line.replace("INFO", "\x1b[32mINFO\x1b[0m") for line in made["logback"]]
    yield LogFile("logback.colours.log", text(coloured), "logback")
    yield LogFile("spring_boot.traces.log", text(with_traces(spring, JAVA_TRACE)), "spring_boot")
    traces = with_traces(made["python_logging"], PYTHON_TRACE)
    yield LogFile("python_logging.traces.log", text(traces), "python_logging")
    traces = with_traces(made["klog"], JAVA_TRACE)
    yield LogFile("klog.traces.log", text(traces), "klog")
    traces = with_traces(made["regex"], PYTHON_TRACE)
    yield LogFile("regex.traces.log", text(traces), "regex")
    rotated = [*made["common"][:30], *combined]
    yield LogFile("combined.rotated.log", text(rotated), "combined")
    rotated = [*made["syslog"][:40], *made["nginx_error"]]
    yield LogFile("nginx_error.rotated.log", text(rotated), "nginx_error")
    rest = [*JAVA_TRACE[2:], *spring]
    yield LogFile("spring_boot.cut.log", text(rest), "spring_boot")
    tabs = [CSV_HEADER.replace(",", "\t")]
    tabs += [f"2025-03-03 {_clock(at)}\tDE\t{at}\t1.5\tx y\ttrue" for at in range(50)]
    yield LogFile("tsv.header.tsv", text(tabs), "tsv")
    semicolons = ["Name;Zeit;Wert", *(f"a{at % 3};2025-03-03 {_clock(at)};{at}" for at in range(9))]
    yield LogFile("csv.semicolons.csv", text(semicolons), "csv")
    bare = [f"2025-03-03 {_clock(at)},web{at % 3},{at},ok" for at in range(40)]
    yield LogFile("csv.bare.csv", text(bare), "csv")
    yield LogFile("w3c.proxy.log", text(_w3c()), "w3c")
    for name, lines in _guessed().items():
        yield LogFile(f"regex.{name}.log", text(lines), "regex")


def _w3c() -> list[str]:
    lines = ["#Version: 1.0", "#Fields: date time c-ip cs-method cs-uri sc-status x-cache-ms"]
    lines += [f"2025-03-03 {_clock(at)} 192.0.2.{at} GET /a{at} 200 {at}" for at in range(20)]
    lines.append("#Fields: date time c-ip cs-method cs-uri sc-status")
    return lines + [f"2025-03-03 {_clock(at)} 192.0.2.{at} PUT /b 404" for at in range(20)]


def _guessed() -> dict[str, list[str]]:
    """Return lines of programs that no format describes."""
    return {
        "dots": [f"03.03.2025 {_clock(at)} INFO Bestellung {at} bezahlt" for at in range(30)],
        "slashes": [f"{at % 28 + 1:02d}/03/2025 {_clock(at)} - job {at} done" for at in range(60)],
        "epoch": [f"{1_741_000_000 + at} core {at % 4} temp={40 + at % 9}" for at in range(40)],
        "level_first": [f"WARN 2025-03-03T{_clock(at)}Z disk sda{at % 3} full" for at in range(30)],
        "hadoop": [f"081109 2036{at:02d} 148 INFO dfs.DataNode: block {at}" for at in range(30)],
        "spark": [f"25/03/03 {_clock(at)} INFO executor.Runner: task {at}" for at in range(30)],
        "android": [f"03-03 {_clock(at)}.811  1702  2395 D Window: {at}" for at in range(30)],
        "elastic": [f"[2025-03-03T{_clock(at)},1][WARN ][o.e.Node] [n1] {at}" for at in range(30)],
        "squid": [f"{1_741_000_000 + at}.123  45 10.0.0.1 TCP_MISS/200 {at}" for at in range(30)],
        "go": [f"2025/03/03 {_clock(at)} server.go:{at}: accepted 10.0.0.{at}" for at in range(30)],
        "java_util": [
            f"Mar 3, 2025 {at % 12 + 1}:07:0{at % 9} PM shop.Main run" for at in range(30)
        ],
    }


def noise_files() -> Iterator[LogFile]:
    """Yield files that are not logs."""
    chance = random.Random(11)
    prose = (
        "It was the best of times, it was the worst of times, it was the age of wisdom,",
        "it was the age of foolishness, it was the epoch of belief, it was the epoch of",
        "incredulity, it was the season of Light, it was the season of Darkness.",
    )
    source = (
        "def total(items, rate=0.19):", '    """Sum with tax."""', "    result = 0",
        "    for name, price in items:", "        result += price * (1 + rate)",
        "    return round(result, 2)",
    )  # fmt: skip
    c = ("#include <stdio.h>", "int main(void) {", '    printf("%d;\\n", 7);', "    return 0;", "}")
    dump = [
        f"{at * 16:08x}  7f 45 4c 46 02 01 01 00  00 00 00 00 00 00 00 00  |.ELF............|"
        for at in range(64)
    ]
    document = json.dumps({"a": [1, 2], "time": "2025-03-03T00:00:00Z", "b": {"c": 1}}, indent=2)
    noise: dict[str, bytes] = {
        "empty": b"",
        "blank": b"\n\n   \n",
        "random": chance.randbytes(20_000),
        "nul": bytes(5_000),
        "picture": b"\x89PNG\r\n\x1a\n" + chance.randbytes(4_000),
        "zip": b"PK\x03\x04" + chance.randbytes(4_000),
        "prose": text(prose * 20),
        "python": text(source * 20),
        "c": text(c * 20),
        "base64": base64.encodebytes(chance.randbytes(9_000)),
        "hex": text(dump),
        "document": document.encode() + b"\n",
        "array": text([json.dumps([at, "x"]) for at in range(20)]),
        "settings": text(["[server]", "port = 8080", "name = shop", "", "[log]", "level = info"]),
        "markdown": text(["# Notes", "", "- one, two", "- three", "", "| a | b |", "|---|---|"]),
        "folder": text(
            [f"-rw-r--r-- 1 root root {at} Mar  3 10:0{at}:00 a{at}" for at in range(9)]
        ),
        "words": text([chance.choice(["alpha", "beta", "gamma"]) for _ in range(200)]),
        "accounts": text([f"user{at}:x:{at}:{at}::/home/u{at}:/bin/sh" for at in range(30)]),
        "statements": text([f"INSERT INTO t VALUES ({at}, 'a', NULL);" for at in range(30)]),
        "stale_trace": text(JAVA_TRACE * 5),
    }
    for name, data in noise.items():
        yield LogFile(f"{name}.noise", data, None)
