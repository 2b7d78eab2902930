"""Lets `python -m kwok_operator` run the command `kwok-operator`."""

import sys


def start() -> int:
    """Runs the command line. Ctrl-C ends it without a traceback, even while modules are imported,
    which takes almost a second."""
    try:
        from kwok_operator.cli.main import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(start())
