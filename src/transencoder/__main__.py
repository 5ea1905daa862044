"""Entry point of `python -m transencoder`, the command line."""

import sys

from transencoder.cli import main

sys.exit(main())
