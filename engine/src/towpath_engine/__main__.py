"""`python -m towpath_engine` is the command `towpath`."""

import sys

from towpath_engine.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
