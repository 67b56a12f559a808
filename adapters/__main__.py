"""`python -m adapters` is the same as the command `acp-adapters`."""

import sys

from adapters.cli import main

sys.exit(main())
