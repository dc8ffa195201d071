"""Make Ctrl-C end a command that is still loading, without a stack trace."""

import signal


def end_at_once() -> None:
    """Let Ctrl-C (SIGINT) end the process immediately until `raise_again` is called."""
    # A shell can start a background command with SIGINT ignored. In that case leave SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """Let SIGINT raise KeyboardInterrupt again, which a command turns into its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
