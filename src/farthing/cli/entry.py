"""Where the command begins: who interrupts it before it does anything sees no trace."""

from __future__ import annotations

import signal


def main() -> None:
    """Entry point of the installed command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until take_interrupts()
    from farthing.cli.main import main

    main()


def take_interrupts() -> None:
    """From now on an interrupt is an exception, which whoever calls this handles."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
