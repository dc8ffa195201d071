"""The decision table, row by row, with made-up stored files and scanned files."""

from dataclasses import replace

import crc32c
import pytest

from collector.identity.decide import decide
from collector.identity.sightings import (
    AnyProbe,
    Decision,
    KeptProbe,
    OpenStat,
    Probe,
    Seen,
    Stamp,
    State,
    Stored,
    Verdict,
    WholeProbe,
)
from collector.identity.trimming import kept_end
from collector.text.fingerprint import Evidence, FileId, Mark, digest_of

OLD = b"".join(b"line %06d\n" % n for n in range(600))  # 7,200 bytes
A, B = FileId(1, 10), FileId(1, 11)
G = Stored("g", "/w/a", A, 7, Evidence().advance(OLD).fingerprint(), is_behind=True)


def seen(path: str, file: FileId, content: bytes, birth_ns: int | None = 7) -> Seen:
    return Seen(path, file, len(content), 100, birth_ns)


def _kept(probe: KeptProbe, data: bytes) -> bytes:
    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    end = kept_end(probe.tail, probe.marker, probe.position, read, len(data))
    return b"" if end is None else end.to_bytes(8, "big")


def judge(
    known: list[Stored],
    files: dict[FileId, bytes],
    names: list[Seen],
    held: dict[str, OpenStat] | None = None,
    *,
    is_complete: bool = True,
) -> list[tuple[Verdict, str | None, str | None, bool]]:
    """Decide over two scans that find the same files, and answer all probes from `files`."""
    answers: dict[AnyProbe, bytes | None] = {}
    noticed: frozenset[str | FileId] = frozenset()
    while True:
        decision: Decision = decide(
            known, names, held or {}, answers, is_complete=is_complete, noticed=noticed
        )
        if not decision.probes and not decision.noticed:
            break
        noticed = noticed if decision.probes else decision.noticed
        for probe in decision.probes:
            if isinstance(probe, WholeProbe):
                answers[probe] = crc32c.crc32c(files[probe.file][: probe.length]).to_bytes(4, "big")
                continue
            if isinstance(probe, KeptProbe):
                answers[probe] = _kept(probe, files[probe.file])
                continue
            data = files[probe.file][probe.offset : probe.offset + probe.length]
            answers[probe] = digest_of(data)
    return [
        (j.verdict, j.generation, None if j.seen is None else j.seen.path, j.lost_possible)
        for j in decision.judgements
    ]


def same(
    path: str, content: bytes, **keys: object
) -> list[tuple[Verdict, str | None, str | None, bool]]:
    return judge([G], {A: content}, [seen(path, A, content)])


OTHER = bytes(reversed(OLD))


@pytest.mark.parametrize(
    ("content", "path", "verdict", "lost"),
    [
        (OLD, "/w/a", Verdict.UNCHANGED, False),
        (OLD + b"more\n", "/w/a", Verdict.GROWN, False),
        (OLD, "/w/a.1", Verdict.RENAMED, False),
        (OLD + b"more\n", "/w/a.1", Verdict.RENAMED, False),
        (OLD[:5000], "/w/a", Verdict.SHRUNK, False),
        (OLD[:4000], "/w/a", Verdict.TRUNCATED, True),
        (b"", "/w/a", Verdict.TRUNCATED, True),
        (OTHER, "/w/a", Verdict.REWRITTEN, True),
        (OLD[:4096] + OTHER[4096:], "/w/a", Verdict.REWRITTEN, True),
        (b"x" + OLD[1:], "/w/a", Verdict.REWRITTEN, True),
        (OLD[2400:], "/w/a", Verdict.TRIMMED, False),
        (OLD[2400:] + OTHER, "/w/a", Verdict.TRIMMED, False),
        (OLD[-1020:] + OTHER, "/w/a", Verdict.REWRITTEN, True),
    ],
)
def test_the_same_inode(content: bytes, path: str, verdict: Verdict, lost: bool) -> None:
    assert same(path, content) == [(verdict, "g", path, lost)]


def test_a_known_stamp_needs_no_probe() -> None:
    known = replace(G, stamp=Stamp(len(OLD), 100))
    decision = decide([known], [seen("/w/a", A, OLD)], {}, {})
    assert decision.probes == frozenset()
    assert [j.verdict for j in decision.judgements] == [Verdict.UNCHANGED]


def test_without_answers_there_is_no_verdict() -> None:
    decision = decide([G], [seen("/w/a", A, OLD)], {}, {})
    assert decision.judgements == ()
    assert len(decision.probes) == 2
    unreadable = dict.fromkeys(decision.probes)
    assert decide([G], [seen("/w/a", A, OLD)], {}, unreadable).judgements == ()


def test_another_birth_is_another_file_whatever_it_holds() -> None:
    found = judge([G], {A: OLD}, [seen("/w/a", A, OLD, birth_ns=8)])
    assert found == [
        (Verdict.INODE_REUSED, "g", "/w/a", False),
        (Verdict.GONE_WHILE_DOWN, "g", None, True),
    ]


GONE = Stored("gone", "/w/a.5", B, 3, Evidence().advance(OTHER).fingerprint(), state=State.GONE)


@pytest.mark.parametrize("state", [State.GONE, State.ROTATED])
@pytest.mark.parametrize("path", ["/w/a.5", "/w/b"])
def test_a_copy_in_the_inode_or_under_the_name_of_an_older_file_is_still_a_copy(
    state: State, path: str
) -> None:
    """A rotation deletes the oldest copy, and the file system reuses its inode for the next
    copy."""
    older = replace(GONE, path=path, state=state)
    copy = seen("/w/a.1", B, OLD, birth_ns=8)
    found = judge([G, older], {A: b"", B: OLD}, [seen("/w/a", A, b""), copy])
    assert found[0] == (Verdict.COPYTRUNCATED, "g", "/w/a.1", False)
    # While the original is not truncated yet, the copy must wait.
    found = judge([G, older], {A: OLD, B: OLD}, [seen("/w/a", A, OLD), copy])
    assert (Verdict.COPY_HELD, None, "/w/a.1", False) in found
    assert not [one for one in found if one[0] in (Verdict.INODE_REUSED, Verdict.NEW)]
    # Here the copy has another inode, but the name that the older file had.
    copy = seen("/w/a.1", FileId(1, 12), OLD, birth_ns=8)
    named = replace(older, path="/w/a.1")
    found = judge([G, named], {A: OLD, copy.file: OLD}, [seen("/w/a", A, OLD), copy])
    assert (Verdict.COPY_HELD, None, "/w/a.1", False) in found
    assert not [one for one in found if one[0] in (Verdict.REPLACED, Verdict.NEW)]


def test_an_open_handle_means_the_inode_was_not_reused() -> None:
    held = {"g": OpenStat(len(OLD), 100, 1)}
    found = judge([G], {A: OLD}, [seen("/w/a", A, OLD, birth_ns=8)], held)
    assert found == [(Verdict.UNCHANGED, "g", "/w/a", False)]


@pytest.mark.parametrize("content", [OTHER, OTHER[:2000]])
def test_another_name_with_another_head_is_a_reused_inode(content: bytes) -> None:
    found = judge([replace(G, birth_ns=None)], {A: content}, [seen("/w/b", A, content)])
    assert found[0] == (Verdict.INODE_REUSED, "g", "/w/b", False)


def test_rotation_with_a_new_file_at_the_old_name() -> None:
    names = [seen("/w/a", B, b"new\n"), seen("/w/a.1", A, OLD)]
    assert judge([G], {A: OLD, B: b"new\n"}, names) == [
        (Verdict.RENAMED, "g", "/w/a.1", False),
        (Verdict.NEW, None, "/w/a", False),
    ]


def test_more_names_are_links_and_the_known_one_is_kept() -> None:
    names = [seen("/w/Z", A, OLD), seen("/w/a", A, OLD)]
    assert judge([G], {A: OLD}, names) == [
        (Verdict.UNCHANGED, "g", "/w/a", False),
        (Verdict.LINKED, None, "/w/Z", False),
    ]


@pytest.mark.parametrize(
    ("links", "newcomer", "expected"),
    [
        (0, False, [(Verdict.DELETED, "g", None, False)]),
        (1, False, [(Verdict.MOVED_OUT, "g", None, False)]),
        (0, True, [(Verdict.REPLACED, "g", "/w/a", False)]),
        (1, True, [(Verdict.MOVED_OUT, "g", None, False), (Verdict.NEW, None, "/w/a", False)]),
    ],
)
def test_a_held_file_without_a_name(
    links: int, newcomer: bool, expected: list[tuple[Verdict, str | None, str | None, bool]]
) -> None:
    names = [seen("/w/a", B, b"new\n")] if newcomer else []
    held = {"g": OpenStat(len(OLD), 100, links)}
    assert judge([G], {A: OLD, B: b"new\n"}, names, held) == expected
    draining = replace(G, state=State.DRAINING)
    again = judge([draining], {A: OLD, B: b"new\n"}, [], held)
    assert again == []


def test_a_held_file_is_moved_out_only_after_a_complete_scan() -> None:
    held = {"g": OpenStat(len(OLD), 100, 1)}
    assert judge([G], {}, [], held, is_complete=False) == []


def test_what_is_held_is_read_before_its_continuation() -> None:
    longer = OLD + b"more\n"
    held = {"g": OpenStat(len(OLD) + 5, 100, 0)}
    assert judge([G], {B: longer}, [seen("/w/a", B, longer)], held) == []
    read = replace(G, fingerprint=Evidence().advance(longer).fingerprint())
    assert judge([read], {B: longer}, [seen("/w/a", B, longer)], held) == [
        (Verdict.REPLACED_SAME_HEAD, "g", "/w/a", False)
    ]


def test_a_file_with_another_older_marker_did_not_shrink() -> None:
    for digest, verdict in ((digest_of(OLD[3976:5000]), Verdict.SHRUNK), (b"?", Verdict.TRUNCATED)):
        known = replace(G, trail=(Mark(5000, digest[:8]),))
        (found,) = judge([known], {A: OLD[:6000]}, [seen("/w/a", A, OLD[:6000])])
        assert found[0] is verdict


def test_a_vanished_file_is_gone_once_and_only_after_a_complete_scan() -> None:
    assert judge([G], {}, []) == [(Verdict.GONE_WHILE_DOWN, "g", None, True)]
    assert judge([replace(G, is_behind=False)], {}, []) == [
        (Verdict.GONE_WHILE_DOWN, "g", None, False)
    ]
    assert judge([G], {}, [], is_complete=False) == []
    assert judge([replace(G, state=State.GONE)], {}, []) == []


def test_another_file_at_the_name_of_a_vanished_one() -> None:
    assert judge([G], {B: OTHER}, [seen("/w/a", B, OTHER)]) == [
        (Verdict.REPLACED, "g", "/w/a", False),
        (Verdict.GONE_WHILE_DOWN, "g", None, True),
    ]


def test_a_copy_that_goes_on_takes_the_place_of_a_vanished_file() -> None:
    longer = OLD + b"more\n"
    same_head = (Verdict.REPLACED_SAME_HEAD, "g", "/w/a", False)
    assert judge([G], {B: longer}, [seen("/w/a", B, longer)]) == [same_head]
    moved = (Verdict.MOVED, "g", "/w/b", False)
    assert judge([G], {B: longer}, [seen("/w/b", B, longer)]) == [moved]
    middle = OLD[:5000] + b"?" + OLD[5001:]
    assert (Verdict.NEW, None, "/w/b", False) in judge([G], {B: middle}, [seen("/w/b", B, middle)])


def test_another_device_number_with_the_same_content_is_the_same_file() -> None:
    moved = FileId(2, 10)
    assert judge([G], {moved: OLD}, [seen("/w/a", moved, OLD)]) == [
        (Verdict.RENUMBERED, "g", "/w/a", False)
    ]
    other = judge([G], {moved: OTHER}, [seen("/w/a", moved, OTHER)])
    assert other[0] == (Verdict.REPLACED, "g", "/w/a", False)


def test_a_file_is_the_same_on_another_device_while_its_handle_is_open_or_it_was_gone() -> None:
    moved = FileId(2, 10)
    renumbered = (Verdict.RENUMBERED, "g", "/w/a", False)
    longer = OLD + b"more\n"
    for known in (G, replace(G, state=State.DRAINING), replace(G, state=State.MOVED_OUT)):
        held = {} if known.state is State.MOVED_OUT else {"g": OpenStat(len(OLD), 1, 1)}
        found = judge([known], {moved: longer}, [seen("/w/a", moved, longer)], held)
        assert found == [renumbered], known.state


def test_of_those_that_had_the_inode_before_one_of_which_nothing_was_read_is_not_the_file() -> None:
    moved, nothing = FileId(2, 10), Evidence().fingerprint()
    empty = replace(G, generation="e", state=State.GONE, fingerprint=nothing, is_behind=False)
    found = judge(
        [empty, replace(G, state=State.MOVED_OUT)], {moved: OLD}, [seen("/w/a", moved, OLD)]
    )
    assert found == [(Verdict.RENUMBERED, "g", "/w/a", False)]


def test_what_only_the_file_on_the_device_before_has_may_be_lost() -> None:
    moved, held = FileId(2, 10), {"g": OpenStat(len(OLD) + 5, 2, 1)}
    found = judge([G], {moved: OLD}, [seen("/w/a", moved, OLD)], held)
    assert found == [(Verdict.RENUMBERED, "g", "/w/a", True)]


def test_a_copy_waits_if_its_original_is_truncated_while_they_are_compared() -> None:
    held = {"g": OpenStat(len(OLD), 100, 1)}
    names = [seen("/w/a", A, OLD), seen("/w/a.1", B, OLD[:2000])]
    first = decide([G], names, held, {})
    gone: dict[AnyProbe, bytes | None] = {
        probe: digest_of(OLD[probe.offset : probe.offset + probe.length])
        for probe in first.probes
        if isinstance(probe, Probe)
    }
    while (decision := decide([G], names, held, gone)).probes:
        for probe in decision.probes - gone.keys():
            assert isinstance(probe, Probe)
            of_copy = probe.file == B and digest_of(OLD[probe.offset :][: probe.length])
            gone[probe] = of_copy or None
    assert [one.verdict for one in decision.judgements] == [Verdict.UNCHANGED]


def test_what_has_ended_comes_back_under_its_inode() -> None:
    for state in (State.GONE, State.MOVED_OUT):
        known = replace(G, state=state)
        assert judge([known], {A: OLD}, [seen("/w/b", A, OLD)])[0][0] is Verdict.RENAMED
    done = replace(G, state=State.DONE)
    assert judge([done], {A: OLD}, [seen("/w/a", A, OLD)]) == [(Verdict.NEW, None, "/w/a", False)]


def test_the_living_owner_of_an_inode_goes_before_the_dead() -> None:
    dead = replace(G, generation="old", state=State.GONE, birth_ns=None)
    living = replace(G, generation="new", fingerprint=Evidence().advance(OTHER).fingerprint())
    found = judge([dead, living], {A: OTHER}, [seen("/w/a", A, OTHER)])
    assert found == [(Verdict.UNCHANGED, "new", "/w/a", False)]


def test_nothing_read_yet_proves_nothing() -> None:
    fresh = replace(G, fingerprint=Evidence().fingerprint())
    assert judge([fresh], {A: OTHER}, [seen("/w/a", A, OTHER)])[0][0] is Verdict.GROWN
