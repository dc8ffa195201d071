"""`python -m collector --settings-fd N [...]`: a collector, or one question or order to it."""

import argparse
import sys

from collector.amending import Amendment
from collector.process import Errand, Mode, main


def parse_arguments(arguments: list[str]) -> tuple[int, Errand]:
    """The descriptor to read the settings from, and what to do."""
    parser = argparse.ArgumentParser(prog="python -m collector", description=__doc__)
    parser.add_argument("--settings-fd", type=int, required=True, metavar="N")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--once", action="store_true", help="read everything to its end, then exit")
    modes.add_argument("--check", action="store_true", help="show what would be read, as JSON")
    modes.add_argument("--forget", metavar="FILE", help="forget what is known of a file, as JSON")
    modes.add_argument("--again", metavar="FILE", help="read a file from its start, as JSON")
    parser.add_argument("--execute", action="store_true", help="do it; else it is shown")
    found = parser.parse_args(arguments)
    for what in Amendment:
        wanted = getattr(found, what)
        if wanted is not None:
            errand = Errand(Mode.AMEND, what, wanted, execute=found.execute)
            return found.settings_fd, errand
    mode = Mode.ONCE if found.once else Mode.CHECK if found.check else Mode.RUN
    return found.settings_fd, Errand(mode)


if __name__ == "__main__":
    sys.exit(main(*parse_arguments(sys.argv[1:])))
