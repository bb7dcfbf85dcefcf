"""`towpath dev`: NATS, Postgres and engines as child processes of one command.

For development and tests. Nothing in here runs in production, and nothing outside imports it but
the command line and the tests.
"""
