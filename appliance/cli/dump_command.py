"""`dump-log`: print log files, or check whole folders."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.cluster import JsonOption
from appliance.cli.progress import ProgressLine, progress_line
from appliance.output import CommandError, Exit, counted, out, print_json, say, size_text

if TYPE_CHECKING:
    from appliance.dump.folder import FolderReport

DECODERS = ("offsets", "transactions", "metadata", "plain")
EXPECTED = (
    "expected a name as the broker gives, such as 00000000000000000000.log, .index, .timeindex,"
    " .txnindex or .snapshot, or 00000000000000000000-0000000000.checkpoint"
)


def dump_log(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Segment files, or folders of partitions or brokers.", exists=True),
    ],
    print_data: Annotated[
        bool, typer.Option("--print-data", help="Print batches and records, as Kafka does.")
    ] = False,
    decode: Annotated[
        str | None, typer.Option("--decode", help=f"{', '.join(DECODERS)}; prints the records.")
    ] = None,
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", min=1)] = None,
    as_json: JsonOption = False,
) -> None:
    """Check log files and their index files; exit code 3 when anything is damaged.

    A folder is checked as one log, together with the node's checkpoints. For a folder without log
    files, every log in the folders below it is checked. If entries are missing at the end of a
    sparse index, that cannot be detected, because such an index can have any number of entries.
    """
    from appliance.dump.folder import check_files, check_folder, is_known

    if decode is not None and decode not in DECODERS:
        raise CommandError(f"--decode {decode}: expected {', '.join(DECODERS)}", Exit.USAGE)
    for path in paths:
        if path.is_file() and not is_known(path):
            raise CommandError(f"{path}: {EXPECTED}", Exit.USAGE)
    paths = [one for path in paths for one in _logs_in(path)]
    if print_data or decode is not None:
        _print(paths, decode or "plain", max_bytes)
    with progress_line() as line:
        progress = _Progress(line, _size(paths))
        reports = [check_folder(path, progress.add) for path in paths if path.is_dir()]
        if files := [path for path in paths if path.is_file()]:
            reports.append(check_files(files, progress.add))
    _tell(reports, as_json)


def _logs_in(path: Path) -> list[Path]:
    """Return the path itself or, for a folder that is not a log, the logs in the folders below
    it."""
    from appliance.dump.folder import is_known

    if path.is_file() or any(is_known(one) for one in path.iterdir()):
        return [path]
    return sorted({one.parent for one in path.rglob("*") if is_known(one)}) or [path]


def _tell(reports: "list[FolderReport]", as_json: bool) -> None:
    findings = [finding for report in reports for finding in report.findings]
    files = sum(report.files for report in reports)
    batches = sum(report.batches for report in reports)
    if as_json:
        data = {"files": files, "batches": batches, "findings": [asdict(one) for one in findings]}
        print_json("dump-log/1", data)
    else:
        for finding in findings:
            out(str(finding))
    if not files and not findings:
        raise CommandError(
            "found no log file in the given folders, expected files such as "
            "00000000000000000000.log",
            Exit.NOT_FOUND,
        )
    size = sum(report.size_bytes for report in reports)
    what = counted(len(findings), "finding") if findings else "nothing is wrong"
    looked_at = f"{counted(files, 'file')}, {counted(batches, 'batch', 'batches')}"
    say(f"{what}: {looked_at}, {size_text(size)}")
    if findings:
        raise typer.Exit(Exit.CONDITION)


def _print(paths: list[Path], decoder: str, max_bytes: int | None) -> None:
    """Print the batches of these files and of the files in these folders."""
    from appliance.dump import lines
    from appliance.dump.folder import mapped, named

    for given in paths:
        for path in sorted(given.iterdir()) if given.is_dir() else [given]:
            name = named(path)
            if name is None or not path.is_file():
                continue
            out(f"Dumping {path}")
            with mapped(path) as buffer:
                for line in lines.log_lines(
                    buffer,
                    name,
                    decoder=lines.DECODERS[decoder],
                    with_records=True,
                    bytes_max=max_bytes,
                ):
                    out(line)


def _size(paths: list[Path]) -> int:
    return sum(
        one.stat().st_size
        for path in paths
        for one in (path.iterdir() if path.is_dir() else [path])
        if one.is_file()
    )


class _Progress:
    """Shows how many bytes are checked, and how long the remaining bytes take at this pace."""

    def __init__(self, line: ProgressLine, of: int) -> None:
        self._line, self._of, self._done = line, of, 0

    def add(self, size_bytes: int) -> None:
        """Add the number of bytes that have been read since the last call."""
        self._done += size_bytes
        self._line.show(self._text)

    def _text(self) -> str:
        left_s = self._line.elapsed_s * (self._of / self._done - 1) if self._done else 0.0
        done, of = size_text(self._done), size_text(self._of)
        return f"{done} of {of}, {max(0.0, left_s):.0f} s left"
