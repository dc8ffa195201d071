"""`python -m collector --settings-fd N [...]`: run a collector, or one of its commands."""

import argparse
import sys

from collector.amending import Amendment
from collector.process import Errand, Mode, main


def parse_arguments(arguments: list[str]) -> tuple[int, Errand]:
    """Return the file descriptor of the settings, and the task of the process."""
    parser = argparse.ArgumentParser(prog="python -m collector", description=__doc__)
    parser.add_argument("--settings-fd", type=int, required=True, metavar="N")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--once", action="store_true", help="read all files to their end, then exit")
    modes.add_argument("--check", action="store_true", help="show as JSON what would be read")
    modes.add_argument("--forget", metavar="FILE", help="forget what is stored about a file")
    modes.add_argument("--again", metavar="FILE", help="read a file again from its start")
    parser.add_argument("--execute", action="store_true", help="do it instead of only showing it")
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
