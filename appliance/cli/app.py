"""The entry point of the command line. Only this module turns errors into exit codes."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance import interrupts
from appliance.cli import context
from appliance.cli.tree import Tree
from appliance.config.faults import ConfigFaults
from appliance.errors import Failure, reason_of
from appliance.launch.extras import EXTRA_OF, remedy
from appliance.output import CommandError, Exit, say
from appliance.supervisor.control import NoSupervisor

# typer has its own copy of click, so the base class of its errors is found through one of them.
UsageError: Any = typer.BadParameter.__mro__[2]

STDOUT = 1
"""The file descriptor of standard output, even if `sys.stdout` was replaced."""

app = typer.Typer(
    name="millrace",
    cls=Tree,
    help="Drop log files into a folder; read exact, live counts in Redis and MySQL.",
    no_args_is_help=True,
    # `completion` prints a script that is faster than typer's own.
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(is_asked: bool) -> None:
    if is_asked:
        from appliance.cli.version_command import version

        version()
        raise typer.Exit


@app.callback()
def _before_every_command(
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The configuration file, if not configs/millrace.yaml."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    context.use_config(config)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="millrace")
        sys.stdout.flush()
        return code if isinstance(code, int) else Exit.OK
    except typer.Abort:
        return Exit.INTERRUPTED
    except UsageError as error:
        error.show()
        return Exit.USAGE
    except CommandError as error:
        say(f"millrace: {error}")
        return error.code
    except ConfigFaults as error:
        for fault in error.faults:
            say(str(fault))
        count = len(error.faults)
        say(f"millrace: {count} fault{'s' if count != 1 else ''} in the configuration")
        return Exit.USAGE
    except NoSupervisor:
        say(f"millrace: {context.not_running()}")
        return Exit.UNREACHABLE
    except Failure as error:
        say(f"millrace: {error}")
        return Exit.FAILED
    except ModuleNotFoundError as error:
        if (extra := EXTRA_OF.get(error.name or "")) is None:
            raise
        say(f"millrace: this command needs the Python package {error.name}; {remedy(extra)}")
        return Exit.CONDITION
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except SystemExit as end:
        # typer itself exits with its own code when the pipe is closed.
        if isinstance(end.__context__, BrokenPipeError):
            return _nobody_reads()
        raise
    except OSError as error:
        # The operating system refused an operation, for example because the disk is full or the
        # folder belongs to another account. A stack trace would not help the user.
        place = f"{error.filename}: " if error.filename is not None else ""
        say(f"millrace: {place}{reason_of(error)}")
        return Exit.FAILED


def _nobody_reads() -> int:
    """Return the exit code for a closed pipe. Also prevent an error message of the interpreter when
    it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
    return Exit.CLOSED_PIPE


def run_main() -> None:
    """Run the command and end the process with its exit code."""
    interrupts.raise_again()
    sys.exit(main())
