"""`python -m pyflame`."""

import sys

from pyflame.cli import main

sys.exit(main())
