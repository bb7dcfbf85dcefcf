"""The Towpath orchestrator. Only the version is public here."""

import os

__version__ = "0.1.0"

PARENT_AT_START = os.getppid()
"""Who started this process. Read here, before anything else is imported: a parent that dies while
`towpath dev` still loads its modules must be missed, too."""
