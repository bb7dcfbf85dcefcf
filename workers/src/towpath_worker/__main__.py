"""`python -m towpath_worker MODULE:NAME`: run workers where only the SDK is installed."""

import sys

from towpath_worker.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
