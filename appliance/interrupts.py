"""What Ctrl-C does to a command that is still being loaded: ends it, without a trace."""

import signal


def end_at_once() -> None:
    """Until `raise_again` the signal ends the process, as it does one that is no Python."""
    # Whoever starts a command in the background may have the signal ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """From here on it is a KeyboardInterrupt, which a command turns into its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
