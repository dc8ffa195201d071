"""`python -m collector --settings-fd N [--once | --check]`: a collector, or one question to it."""

import argparse
import sys

from collector.process import Mode, main


def parse_arguments(arguments: list[str]) -> tuple[int, Mode]:
    """The descriptor to read the settings from, and what to do."""
    parser = argparse.ArgumentParser(prog="python -m collector", description=__doc__)
    parser.add_argument("--settings-fd", type=int, required=True, metavar="N")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--once", action="store_true", help="read everything to its end, then exit")
    modes.add_argument("--check", action="store_true", help="show what would be read, as JSON")
    found = parser.parse_args(arguments)
    mode = Mode.ONCE if found.once else Mode.CHECK if found.check else Mode.RUN
    return found.settings_fd, mode


if __name__ == "__main__":
    sys.exit(main(*parse_arguments(sys.argv[1:])))
