"""`python -m appliance.kafka_tools TOOL OPTIONS`, which the scripts in `bin/` run."""

import os
import sys
from importlib import import_module

from appliance import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()

from appliance.output import Exit, say

TOOLS = (
    "topics",
    "console-producer",
    "console-consumer",
    "consumer-groups",
    "configs",
    "get-offsets",
    "delete-records",
    "dump-log",
    "broker-api-versions",
    "log-dirs",
    "transactions",
    "metadata-quorum",
    "leader-election",
    "reassign-partitions",
    "acls",
    "features",
)


def main(arguments: list[str]) -> int:
    """Run the tool named first; return its exit code."""
    if not arguments or arguments[0] not in TOOLS:
        say(f"expected one of {', '.join(TOOLS)}")
        return Exit.USAGE
    module = import_module(f"appliance.kafka_tools.{arguments[0].replace('-', '_')}")
    try:
        code = module.main(arguments[1:])
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has ended. Redirect standard output, so that the interpreter
        # reports no error when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.CLOSED_PIPE


if __name__ == "__main__":
    interrupts.raise_again()
    sys.exit(main(sys.argv[1:]))
