"""Arguments of the verbs that print rights: apart from the verbs, which load much more."""

import argparse


def add_permissions_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of `towpath nats-permissions`, besides `--json` and `--config`."""
    parser.add_argument("queues", nargs="*", metavar="QUEUE", help="rights of these queues' pools")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--users",
        action="store_true",
        help="users of one account (default): for pools that are trusted not to send junk",
    )
    form.add_argument(
        "--account",
        action="store_true",
        help="an account for each party, the engines' included: for pools that are not trusted",
    )
    parser.add_argument("--engine", action="store_true", help="rights of the engines, too")
    parser.add_argument(
        "--client", action="store_true", help="rights of services that start and signal runs, too"
    )
    parser.add_argument(
        "--operator", action="store_true", help="rights of those who deploy and repair, too"
    )
    parser.add_argument("--inbox", metavar="PREFIX", help="inbox prefix of the one QUEUE's pool")
    parser.add_argument("--prefix", help="the installation's subject prefix (TOWPATH_PREFIX)")


def add_role_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of `towpath database-role`, besides `--json` and `--config`."""
    parser.add_argument("role", metavar="ROLE", help="the Postgres role of `towpath serve`")
    parser.add_argument(
        "--apply", action="store_true", help="run the statements instead of printing them"
    )
