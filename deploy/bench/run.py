"""`make bench`: W1 and W2 of one engine and one worker; see deploy/bench/README.md."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from deploy.bench.main import main

    sys.exit(main(sys.argv[1:]))
