"""The answers to the probes of a scan that has many files."""

from collections.abc import Iterator
from pathlib import Path

from collector.identity.handles import Handles
from collector.identity.probing import Prober
from collector.identity.sightings import Probe, WholeProbe
from collector.text.fingerprint import FileId, digest_of


class Questions(frozenset[Probe | WholeProbe]):
    """A set of probes that counts how often it is iterated."""

    rounds = 0

    def __iter__(self) -> Iterator[Probe | WholeProbe]:
        type(self).rounds += 1
        return super().__iter__()


def test_each_file_is_opened_for_its_own_questions_whatever_the_number_of_files(
    tmp_path: Path,
) -> None:
    paths: dict[FileId, str] = {}
    expected: dict[Probe | WholeProbe, bytes] = {}
    for index in range(100):
        path = tmp_path / f"{index}"
        data = b"%099d\n" % index
        path.write_bytes(data)
        file = FileId(path.stat().st_dev, path.stat().st_ino)
        paths[file] = str(path)
        expected[Probe(file, 0, 50)] = digest_of(data[:50])
        expected[Probe(file, 90, 10)] = digest_of(data[90:])
    prober = Prober(Handles(8))
    prober.begin()
    assert prober.answer(Questions(expected), paths) == expected
    # Iterating once per file would be quadratic: with ten thousand files it took half a minute.
    assert Questions.rounds == 1
