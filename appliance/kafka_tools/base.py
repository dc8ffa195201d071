"""The common code of all tools: parse options, open a cluster, turn errors into exit codes.

Options are spelled as in Kafka: `--name value`, `--name=value`, or any unambiguous beginning.
Option names that Kafka 4.2 has replaced are accepted too, with a notice on standard error. Exit
codes are those of Millrace: 0 done, 1 refused or failed, 2 usage, 4 not found, 5 no broker, 124
timeout.
"""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from appliance.output import CommandError, Exit, out, say
from protocol.status import VERSION

KAFKA_VERSION = "4.3.1"
"""The version of Kafka whose tools are the model for these tools."""

USABLE_PROPERTIES = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "security.protocol",
    }
)

# Properties that only tune Kafka's own client and do not change the result.
HARMLESS_PREFIXES = ("metadata.", "reconnect.", "retry.", "retries", "socket.", "connections.")


class UsageFault(Exception):
    """Raised for options that exclude each other. The text names them."""


class AlreadyTold(CommandError):
    """Ends the tool with `code` without a message, because everything has been printed already."""

    def __init__(self, code: Exit) -> None:
        super().__init__("", code)


class ToolParser(argparse.ArgumentParser):
    """The parser for the options of one tool. Its help lists the options."""

    def __init__(self, name: str, about: str) -> None:
        super().__init__(
            prog=f"kafka-{name}",
            description=about,
            add_help=False,
            allow_abbrev=True,
            usage=f"kafka-{name} --bootstrap-server HOST:PORT OPTIONS",
        )
        self.add_argument("--help", action="store_true", help="Print usage information.")
        self.add_argument("--version", action="store_true", help="Display the version.")

    def connects(self, *, with_config: bool = True) -> None:
        """Add the options of every tool that connects to a broker."""
        self.add_argument(
            "--bootstrap-server", metavar="HOST:PORT", help="The server to connect to."
        )
        if with_config:
            self.add_argument(
                "--command-config", metavar="FILE", help="A file of client properties."
            )

    def refuses(self, option: str, why: str) -> None:
        """Accept an option of Kafka's tool that this version does not support, and raise an error
        that says why."""

        class RefusedOption(argparse.Action):
            def __call__(
                self, parser: Any, namespace: Any, values: Any, option_string: Any = None
            ) -> None:
                raise CommandError(f"{option} {why}", Exit.USAGE)

        self.add_argument(option, nargs="?", action=RefusedOption, help=f"Refused: it {why}.")

    def error(self, message: str) -> NoReturn:
        """Print an error in the form of argparse's own errors, and exit."""
        raise UsageFault(message)


def renamed(old: str, new: str) -> type[argparse.Action]:
    """Return an action that accepts an option's old name, and prints its new name once."""
    is_told = False

    class RenamedOption(argparse.Action):
        def __call__(
            self, parser: Any, namespace: Any, values: Any, option_string: Any = None
        ) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                say(
                    f"Option --{old} is deprecated and will be removed in a future version."
                    f" Use --{new} instead."
                )
            before = getattr(namespace, self.dest, None)
            taken = [*(before or []), values] if isinstance(before, list) else values
            setattr(namespace, self.dest, taken)

    return RenamedOption


def read_properties(path: str | None, used: Collection[str] = ()) -> dict[str, str]:
    """Read a file of Java properties. Raises CommandError for what this version does not support.

    `used` has the names of properties that the tool itself reads, in addition to the properties of
    a client.
    """
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", Exit.USAGE) from error
    found = parse_properties(text)
    protocol = found.get("security.protocol", "PLAINTEXT")
    if protocol != "PLAINTEXT":
        text = f"{path}: security.protocol is {protocol}; this version speaks PLAINTEXT only"
        raise CommandError(text, Exit.USAGE)
    for name in found:
        is_used = name in USABLE_PROPERTIES or name in used
        if not is_used and not name.startswith(HARMLESS_PREFIXES):
            say(f"{path}: {name} has no effect here")
    return found


def parse_properties(text: str) -> dict[str, str]:
    """Return the names and values in the text of Java properties."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        stripped = line.strip()
        while stripped.endswith("\\") and (following := next(lines, None)) is not None:
            stripped = stripped[:-1] + following.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, separator, value = stripped.partition("=")
        if not separator:
            name, _, value = stripped.partition(":")
        found[name.strip()] = value.strip()
    return found


def properties_of(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `name=value` texts into a mapping. Raises UsageFault."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageFault(f"found {pair!r}, expected name=value")
        found[name] = value
    return found


def one_of(options: argparse.Namespace, names: Sequence[str], complaint: str) -> str:
    """Return the name of the flag that is set. Raises UsageFault with the text `complaint` unless
    exactly one is set."""
    chosen = [name for name in names if getattr(options, name.replace("-", "_"))]
    if len(chosen) != 1:
        raise UsageFault(complaint)
    return chosen[0]


def servers_of(options: argparse.Namespace, properties: dict[str, str] | None = None) -> str:
    """Return the bootstrap servers. Raises UsageFault when there are none."""
    found = options.bootstrap_server or (properties or {}).get("bootstrap.servers")
    if not found:
        raise UsageFault('Missing required argument "[bootstrap-server]"')
    return str(found)


def print_columns(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under the column titles `heads`.

    Each cell is padded to the longest cell of its column, with a TAB after it.
    """
    texts = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in texts) for place in range(len(heads))]
    for line in texts:
        out("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)))


def run_tool(
    parser: ToolParser,
    arguments: Sequence[str],
    work: Callable[[argparse.Namespace], int | None],
    *,
    failed: Callable[[CommandError], None] | None = None,
) -> int:
    """Parse the options and run the tool; every error becomes a message and an exit code."""
    try:
        options = parser.parse_args(list(arguments))
        if options.help:
            out(parser.format_help().rstrip())
            return Exit.OK
        if options.version:
            out(f"millrace {VERSION} (options of Apache Kafka {KAFKA_VERSION})")
            return Exit.OK
        code = work(options)
        sys.stdout.flush()
        return Exit.OK if code is None else code
    except UsageFault as error:
        say(str(error))
        say(parser.format_help().rstrip())
        return Exit.USAGE
    except CommandError as error:
        if isinstance(error, AlreadyTold):
            return error.code
        if failed is None:
            say(str(error))
        else:
            failed(error)
        return error.code
