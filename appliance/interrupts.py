"""Make Ctrl-C end a command that is still loading, without a stack trace."""

import signal


def end_at_once() -> None:
    """Until `raise_again`, let the signal end the process by its default action."""
    # A shell can start a background command with the signal ignored; then it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """From here on the signal raises KeyboardInterrupt, which a command turns into its exit
    code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
