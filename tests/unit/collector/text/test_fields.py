"""Fields are added only to lines that are JSON objects, and never replace a field of the line."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.text.fields import fields_of
from tests.unit.collector.world import HOST, World

FIELDS = fields_of({"host": "web-1", "rack": 7, "live": True, "share": 0.5})
TAIL = b'"host":"web-1","rack":7,"live":true,"share":0.5'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"a":1}', b'{"a":1,' + TAIL + b"}"),
        (b"{}", b"{" + TAIL + b"}"),
        (b"{ \t}", b"{ \t" + TAIL + b"}"),
        (b' {"a" : [1, {"host":2}] } \r', b' {"a" : [1, {"host":2}] ,' + TAIL + b"} \r"),
        (b'{"host":"mine"}', b'{"host":"mine","rack":7,"live":true,"share":0.5}'),
        (
            b'{"h\\u006fst":null,"share":1,"live":0,"rack":0}',
            b'{"h\\u006fst":null,"share":1,"live":0,"rack":0}',
        ),
        (b'{"a":"}"}', b'{"a":"}",' + TAIL + b"}"),
        (b'{"n":' + b"9" * 6000 + b"}", b'{"n":' + b"9" * 6000 + b"," + TAIL + b"}"),
    ],
)
def test_an_object_is_given_the_fields_that_it_lacks(line: bytes, expected: bytes) -> None:
    assert FIELDS.put_into(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"", b" ", b"}", b"{", b"plain text }", b"[1]", b'"{}"', b"7", b"null", b'{"a":1} x',
        b'{"a":1}{"b":2}', b'{"a":1,}', b'{"a":NaN}', b"{a:1}", b'{"a":"\xff"}', b"\x00{}",
        b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", b'{"a":"\t"}', b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
def test_anything_else_is_given_none(line: bytes) -> None:
    assert FIELDS.put_into(line) is None


@given(st.dictionaries(st.text(), JSON, max_size=5), st.booleans())
def test_any_object_keeps_what_it_has_and_gets_the_rest(
    found: dict[str, Any], spaced: bool
) -> None:
    line = json.dumps(found, indent=None, separators=None if spaced else (",", ":")).encode()
    made = FIELDS.put_into(line)
    assert made is not None
    assert len(made) <= len(line) + FIELDS.bytes_max
    assert json.loads(made) == {
        "host": "web-1", "rack": 7, "live": True, "share": 0.5, **found
    }  # fmt: skip


def test_odd_values_are_written_as_json_writes_them() -> None:
    fields = fields_of({'a"b': "\n\u2028ü\ud800", "n": 10**30})
    made = fields.put_into(b"{}")
    assert made is not None
    assert b"\n" not in made
    assert json.loads(made) == {'a"b': "\n\u2028ü\ud800", "n": 10**30}


# --- lines of files -------------------------------------------------------------------------------


def test_lines_of_a_file_go_with_the_fields_and_others_as_they_are(tmp_path: Path) -> None:
    world = World(tmp_path, fields={"host": "{host}", "n": 1})
    world.append("a", b'{"a":1}\nno object\n{"host":"mine"}\r\n\n')
    world.look()
    host = HOST.encode()
    assert world.lines == [
        b'{"a":1,"host":"' + host + b'","n":1}',
        b"no object",
        b'{"host":"mine","n":1}',
        b"",
    ]
    assert world.count("fields_not_put") == 2
    (known,) = world.registry.generations.values()
    assert known.position == world.path("a").stat().st_size


def test_positions_are_those_of_the_file_over_kills_and_small_batches(tmp_path: Path) -> None:
    world = World(tmp_path, fields={"env": "production"})
    world.limit = 3_000
    written = []
    for round_ in range(12):
        lines = [b'{"n":%d}' % (round_ * 100 + n) if n % 7 else b"x%d-%d" % (round_, n)
                 for n in range(100)]  # fmt: skip
        written += lines
        world.append("a", b"".join(line + b"\n" for line in lines))
        world.scan()
        world.feeder.step(world.now_ms)
        world.send()
        if round_ % 3 == 0:
            world.kill()
            world.up()
        elif round_ % 3 == 1:
            world.abort()
    world.look()
    expected = [
        line[:-1] + b',"env":"production"}' if line.startswith(b"{") else line for line in written
    ]
    assert world.lines == expected


def test_other_fields_hold_for_what_is_read_from_then_on(tmp_path: Path) -> None:
    world = World(tmp_path, fields={"v": 1})
    world.append("a", b'{"a":1}\n')
    world.look()
    world.append("a", b'{"a":2}\n')
    world.change({"paths": [f"{tmp_path}/a*"], "topic": "t", "fields": {"v": 2}})
    world.look()
    assert world.lines == [b'{"a":1,"v":1}', b'{"a":2,"v":2}']


def test_other_encodings_archives_and_lines_without_their_end(tmp_path: Path) -> None:
    world = World(tmp_path, fields={"k": "v"}, encoding="utf-16-le")
    world.append("a", '{"ü":1}\n{"b":2}\n{"half":3}'.encode("utf-16-le"))
    world.look()
    world.path("a").unlink()
    world.quiet()
    assert world.lines == ['{"ü":1,"k":"v"}'.encode(), b'{"b":2,"k":"v"}', b'{"half":3,"k":"v"}']
    other = tmp_path / "other"
    other.mkdir()
    world = World(other, fields={"k": "v"})
    world.path("b.gz").write_bytes(gzip.compress(b'{"b":2}\n'))
    world.look()
    assert world.lines == [b'{"b":2,"k":"v"}']


def test_an_overlong_line_is_no_object_and_dead_letters_are_the_files_bytes(tmp_path: Path) -> None:
    line = b'{"a":"' + b"y" * 3_000 + b'"}'
    world = World(tmp_path, fields={"k": "v"}, max_line_bytes=1024)
    world.append("a", line + b'\n{"b":1}\n')
    world.look()
    assert b"".join(world.lines[:-1]) == line
    assert world.lines[-1] == b'{"b":1,"k":"v"}'
    assert world.count("fields_not_put") == 3
    other = tmp_path / "other"
    other.mkdir()
    world = World(other, fields={"k": "v"}, max_line_bytes=1024, on_overlong="dead_letter")
    world.append("a", line + b"\n")
    world.look()
    assert [value for _, value in world.sent] == [line[:1024]]


def test_a_line_and_its_fields_fit_the_batch_of_its_topic(tmp_path: Path) -> None:
    world = World(tmp_path, fields={"k": "x" * 900})
    world.limit = 10_000
    world.up()
    longest = 10_000 - 1_000 - 910
    for length in (longest - 40, longest + 40, longest + 2_000):
        world.append("a", b'{"a":"' + b"y" * (length - 8) + b'"}\n')
    world.look()
    assert len(world.lines[0]) > longest
    assert all(len(line) <= 10_000 - 100 for line in world.lines)


def test_lines_of_an_input_without_fields_are_not_looked_into(tmp_path: Path) -> None:
    called = []

    def note(frame: Any, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.endswith("collector/text/fields.py"):
            called.append(frame.f_code.co_name)

    world = World(tmp_path)
    world.append("a", b'{"a":1}\n' * 100)
    sys.setprofile(note)
    try:
        world.look()
    finally:
        sys.setprofile(None)
    assert world.lines == [b'{"a":1}'] * 100
    assert called == []
