"""`python -m kwok_operator` is `kwok-operator`."""

import sys


def start() -> int:
    """Also Ctrl-C while modules are read, which takes most of a second, ends without a trace."""
    try:
        from kwok_operator.cli.main import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(start())
