"""`make demo`: start everything, run the orders, compare the outcome, stop everything.

Exit status: 0 the outcome is as expected · 1 it differs · 2 bad usage or a bad file of orders ·
3 the demo could not be carried out.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from deploy.demo.main import main

    sys.exit(main(sys.argv[1:]))
