"""What the demo shows while it works: a live line for people, or JSON lines for programs."""

import json
import sys
import time
from collections.abc import Mapping


class Screen:
    """One place that prints."""

    def __init__(self, *, json_events: bool) -> None:
        self._json = json_events
        self._began = time.monotonic()
        self._live = sys.stdout.isatty() and not json_events
        self._open_line = False
        self._last_progress = 0.0

    def event(self, name: str, /, **facts: object) -> None:
        """A fact for programs: {"event": name, ...}."""
        if self._json:
            print(json.dumps({"event": name, **facts}, ensure_ascii=False), flush=True)

    def process(self, name: str, pid: int) -> None:
        """A child was started, or started again."""
        self.event("process", name=name, pid=pid)

    def say(self, text: str) -> None:
        """Text for people."""
        if not self._json:
            print(("\n" if self._open_line else "") + text, flush=True)
            self._open_line = False

    def progress(self, total: int, counts: Mapping[str, int], redelivered: int) -> None:
        """How many runs are where; one line that rewrites itself, or a new one now and then."""
        facts = dict(sorted(counts.items()))
        self.event("progress", total=total, counts=facts, redelivered=redelivered)
        elapsed = time.monotonic() - self._began
        states = "  ".join(f"{status} {count}" for status, count in facts.items())
        line = f"{elapsed:6.1f} s  {sum(counts.values())}/{total} started  {states}"
        if self._live:
            print(f"\r\x1b[K{line}", end="", flush=True)
            self._open_line = True
        elif elapsed - self._last_progress >= 2:
            self._last_progress = elapsed
            self.say(line)
