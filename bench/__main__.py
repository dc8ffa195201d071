"""`python -m bench [PART…]`: measure Millrace and print JSON lines, then a table.

The lines go to standard output, everything else to standard error. Exit code 0 when every part was
measured, whatever the result; 1 when a part could not be measured; 2 for wrong arguments.
"""

import argparse
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from bench import report
from bench.measurement import Measurement
from bench.parts import PARTS, Unavailable
from bench.session import Bench, Options
from protocol.units import parse_size_bytes


def parse_arguments(arguments: list[str]) -> tuple[list[str], Options]:
    """Return the names of the parts to measure, and the options."""
    told = "\n".join(f"  {name:12}{part.what}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=(__doc__ or "").splitlines()[0],
        epilog=f"parts (without PART: all that do not say `only if named`):\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to measure")
    parser.add_argument("--quick", action="store_true", help="small runs, about two minutes in all")
    parser.add_argument(
        "--runs", "--rounds", type=int, help="runs of each case, in turn (3; 1 with --quick)"
    )
    parser.add_argument(
        "--size", help="size of the dropped old file, and of the copy (1GB; 50MB with --quick)"
    )
    parser.add_argument("--kafka", action="store_true", help="also measure Apache Kafka")
    parser.add_argument(
        "--folder", type=Path, default=Options().folder, help="folder for temporary files"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the made-up lines")
    found = parser.parse_args(arguments)
    for name in found.parts:
        if name not in PARTS:
            parser.error(f"found {name!r}, expected one of: {', '.join(PARTS)}")
    try:
        size = parse_size_bytes(found.size or ("50MB" if found.quick else "1GB"))
    except ValueError as error:
        parser.error(f"--size: {error}")
    runs = (1 if found.quick else 3) if found.runs is None else found.runs
    if runs < 1:
        parser.error(f"--runs: found {runs}, expected at least 1")
    options = Options(
        quick=found.quick,
        runs=runs,
        size_bytes=size,
        beside_kafka=found.kafka,
        folder=found.folder.absolute(),
        seed=found.seed,
    )
    usual = [name for name, part in PARTS.items() if not part.is_asked_for]
    return found.parts or usual, options


EXIT_TERMINATED = 143


class _Terminated:
    """A handler of SIGTERM that ends the bench in the same way as an interrupt, so that the bench
    cleans up."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self, *_: object) -> NoReturn:
        self.is_set = True
        raise SystemExit(EXIT_TERMINATED)


terminated = _Terminated()


def run(names: list[str], options: Options) -> int:
    """Measure the parts one after the other. A part that fails does not stop the others."""
    found: list[Measurement] = []
    code = 0
    with Bench(options) as bench:
        for name in names:
            report.note(f"{name}: {PARTS[name].what}")
            try:
                for measurement in PARTS[name].measure(bench):
                    found.append(measurement)
                    report.write_line(measurement, sys.stdout)
            except Unavailable as error:
                report.note(f"{name} was not measured: {error}")
            except Exception:  # noqa: BLE001 - the other parts are still worth measuring
                report.note(f"{name} failed:\n{traceback.format_exc()}")
                code = 1
                if terminated.is_set:
                    # SIGTERM ended the part, and the clean-up of the part then raised this
                    # exception.
                    return EXIT_TERMINATED
    report.table(found, sys.stderr)
    return code


if __name__ == "__main__":
    # Clean up after SIGTERM as after Ctrl-C.
    signal.signal(signal.SIGTERM, terminated)
    try:
        sys.exit(run(*parse_arguments(sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(130)
