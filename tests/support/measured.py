"""Says what a test has measured: shown by `pytest -s`, asserted by nobody."""

import sys


def measured(text: str) -> None:
    """Say it on a line of its own."""
    sys.stdout.write(f"\nmeasured: {text}\n")
