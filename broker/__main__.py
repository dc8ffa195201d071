"""`python -m broker --settings-fd N`: runs one broker process, which reads its settings as JSON
from descriptor N."""

from __future__ import annotations

import argparse
import sys

from broker.real.process import main


def parse_arguments(arguments: list[str]) -> int:
    """Return the file descriptor from which to read the settings."""
    parser = argparse.ArgumentParser(prog="python -m broker", description=__doc__)
    parser.add_argument("--settings-fd", type=int, required=True, metavar="N")
    descriptor: int = parser.parse_args(arguments).settings_fd
    return descriptor


if __name__ == "__main__":
    sys.exit(main(parse_arguments(sys.argv[1:])))
