"""The Towpath orchestrator. Only the version is public here."""

__version__ = "0.1.0"
