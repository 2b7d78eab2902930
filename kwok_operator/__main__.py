"""`python -m kwok_operator` is `kwok-operator`."""

import sys

from kwok_operator.cli.main import main

sys.exit(main())
