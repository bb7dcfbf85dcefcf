"""Messages, subjects, limits and codec of the Towpath protocol, version 1."""
