"""The Python worker SDK and client of Towpath."""
