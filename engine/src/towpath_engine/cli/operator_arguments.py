"""Arguments of the verbs about a whole installation: definitions, queues, workers, dead letters."""

from towpath_engine.cli.parser import (
    Verbs,
    add_client_verb,
    add_group,
    add_target,
    add_verb,
    add_who_and_why,
    count,
)


def add_operator_verbs(verbs: Verbs) -> None:
    """validate, deploy, workflows, queues, workers, pause, resume, pauses, dead-letters."""
    _add_workflows(verbs)
    add_client_verb(verbs, "queues", "list the queues: what waits, and who pulls")
    workers = add_client_verb(verbs, "workers", "list the workers that are heard of")
    workers.add_argument("--queue", help="only those of this queue")
    workers.add_argument("--all", action="store_true", help="also those no longer heard of")
    _add_pauses(verbs, "pause", "dispatch nothing new: of a run, workflow, queue or task")
    _add_pauses(verbs, "resume", "lift a pause")
    add_client_verb(verbs, "pauses", "list the pauses of workflows, queues and tasks")
    _add_dead_letters(verbs)


def _add_workflows(verbs: Verbs) -> None:
    validate = add_verb(verbs, "validate", "check a workflow definition without a server")
    validate.add_argument("file", metavar="FILE", help="YAML or JSON; - is standard input")
    deploy = add_client_verb(verbs, "deploy", "deploy a workflow definition")
    deploy.add_argument("file", metavar="FILE", help="YAML or JSON; - is standard input")
    how = deploy.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="let the engine check it only")
    how.add_argument("--watch", action="store_true", help="deploy again whenever FILE changes")
    workflows = add_client_verb(verbs, "workflows", "list the workflows, or show one")
    workflows.add_argument("workflow", nargs="?", metavar="WORKFLOW", help="show its definition")
    workflows.add_argument("--version", type=count, metavar="N", help="default: the newest")


def _add_pauses(verbs: Verbs, name: str, text: str) -> None:
    scopes = add_group(verbs, name, text)
    run = add_client_verb(scopes, "run", f"{name} one run")
    add_target(run)
    add_who_and_why(run)
    workflow = add_client_verb(scopes, "workflow", f"{name} the runs of a workflow")
    workflow.add_argument("name", metavar="WORKFLOW")
    workflow.add_argument("--version", type=count, metavar="N", help="only of this version")
    add_who_and_why(workflow)
    for scope in ("queue", "task"):
        parser = add_client_verb(scopes, scope, f"{name} the steps of a {scope}")
        parser.add_argument("name", metavar=scope.upper())
        add_who_and_why(parser)


def _add_dead_letters(verbs: Verbs) -> None:
    letters = add_group(verbs, "dead-letters", "messages that could not be applied")
    listed = add_client_verb(letters, "list", "list them, newest first")
    listed.add_argument("--limit", type=count, default=50, metavar="N", help="default: 50")
    listed.add_argument("--all", action="store_true", help="all of them, whatever --limit says")
    shown = add_client_verb(letters, "get", "show one with its whole body")
    shown.add_argument("letter_id", metavar="ID")
    for name, text in (("discard", "delete some"), ("replay", "handle some again, as new")):
        parser = add_client_verb(letters, name, text)
        parser.add_argument("letter_ids", nargs="*", metavar="ID")
        parser.add_argument("--all", action="store_true", help="all that there are now")
        add_who_and_why(parser)
