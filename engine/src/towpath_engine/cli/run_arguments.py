"""Arguments of the verbs about runs."""

from towpath_engine.cli.parser import (
    CommandParser,
    Verbs,
    add_client_verb,
    add_target,
    add_timeout,
    add_who_and_why,
    amount,
    count,
    instant,
)

PRIORITIES = ("critical", "high", "normal", "low")
CONFLICTS = ("existing", "reject", "replace")
STATUSES = (
    "pending", "running", "waiting", "compensating", "completed", "failed", "cancelled",
    "timed_out", "compensated", "compensation_failed",
)  # fmt: skip


def add_run_verbs(verbs: Verbs) -> None:
    """start, start-many, signal, cancel, list, get, history, logs, watch, result, output, explain,
    retry, redrive, restart, purge."""
    _add_start(verbs)
    _add_start_many(verbs)
    _add_signal(verbs)
    _add_list(verbs)
    _add_views(verbs)
    _add_operations(verbs)


def _add_start(verbs: Verbs) -> None:
    start = add_client_verb(verbs, "start", "start a run")
    start.add_argument("workflow", metavar="WORKFLOW", help="its name, as deployed")
    value = start.add_mutually_exclusive_group()
    value.add_argument("--input", metavar="JSON", help="the input (default: null)")
    value.add_argument("--input-file", metavar="FILE", help="YAML or JSON; - is standard input")
    start.add_argument("--key", help="your own id; one live run has it")
    start.add_argument(
        "--on-conflict",
        choices=CONFLICTS,
        default="existing",
        help="what to do when a live run has the key (default: existing)",
    )
    start.add_argument("--version", type=count, metavar="N", help="default: the newest")
    later = start.add_mutually_exclusive_group()
    later.add_argument("--delay-ms", type=amount, metavar="MS", help="begin later")
    later.add_argument("--at", type=instant, metavar="WHEN", help="begin at 2026-01-31T12:00:00Z")
    start.add_argument("--priority", choices=PRIORITIES, help="default: the workflow's")
    start.add_argument("--tag", action="append", default=[], help="may be repeated")
    start.add_argument("--context", metavar="JSON", help="an object every dispatch carries")
    start.add_argument("--request-id", metavar="ID", help="repeats with this id start nothing")
    start.add_argument("--triggered-by", metavar="TEXT", help="what made you start it")
    start.add_argument("--wait", action="store_true", help="wait for the result")
    add_timeout(start)


def _add_start_many(verbs: Verbs) -> None:
    many = add_client_verb(verbs, "start-many", "start a run for each line of a file")
    many.add_argument(
        "file",
        metavar="FILE",
        help='JSON lines as {"workflow": …, "input": …, "key": …}; - is standard input',
    )
    many.add_argument("--workflow", help="for the lines that name none")
    many.add_argument(
        "--inputs", action="store_true", help="a line is the input itself; needs --workflow"
    )


def _add_signal(verbs: Verbs) -> None:
    signal = add_client_verb(verbs, "signal", "send a signal to a run")
    add_target(signal)
    signal.add_argument("signal", metavar="SIGNAL", help="its name")
    signal.add_argument("--payload", metavar="JSON", help="default: null")
    signal.add_argument("--message-id", metavar="ID", help="repeats with this id are ignored")
    signal.add_argument("--by", metavar="WHO", help="who sends it (default: USER@HOST)")
    cancel = add_client_verb(verbs, "cancel", "cancel a run")
    add_target(cancel)
    undo = cancel.add_mutually_exclusive_group()
    undo.add_argument(
        "--compensate",
        dest="compensate",
        action="store_true",
        default=None,
        help="undo its completed steps first (default: as the workflow's on_failure says)",
    )
    undo.add_argument(
        "--no-compensate", dest="compensate", action="store_false", help="undo nothing"
    )
    add_who_and_why(cancel)


def _add_list(verbs: Verbs) -> None:
    runs = add_client_verb(verbs, "list", "list runs, newest first")
    runs.add_argument("--workflow", help="only runs of this workflow")
    runs.add_argument("--status", metavar="STATUS", help=f"only these: {', '.join(STATUSES)}")
    runs.add_argument("--key", help="only runs with this key, live or settled")
    runs.add_argument("--tag", dest="with_tag", metavar="TAG", help="only runs with this tag")
    runs.add_argument(
        "--from",
        dest="created_from",
        type=instant,
        metavar="WHEN",
        help="only runs created then or later: 2026-01-31T12:00:00Z, 2026-01-31, or 2h ago as 2h",
    )
    runs.add_argument(
        "--to", dest="created_to", type=instant, metavar="WHEN", help="only runs created before"
    )
    runs.add_argument("--limit", type=count, default=50, metavar="N", help="default: 50")
    runs.add_argument("--all", action="store_true", help="all of them, whatever --limit says")
    runs.add_argument("--cursor", metavar="CURSOR", help="go on where an earlier list ended")


def _add_views(verbs: Verbs) -> None:
    shown = _add_view(verbs, "get", "show a run and its steps")
    shown.add_argument(
        "--under",
        metavar="STEP",
        help="all steps below this one: a parallel or map step, a branch (notify/email) or an item "
        "(lines[3]); otherwise the first of each are shown",
    )
    _add_view(verbs, "explain", "say why a run is not settled, and when it wakes")
    history = _add_view(verbs, "history", "show what happened to a run")
    history.add_argument(
        "--after-seq", type=amount, default=0, metavar="N", help="only what came after this seq"
    )
    history.add_argument(
        "--payloads",
        action="store_true",
        help="with the values that a replay needs; only with --json",
    )
    history.add_argument(
        "--export", metavar="FILE", help="write it for `towpath replay`; - is standard output"
    )
    logs = _add_view(verbs, "logs", "show what the tasks of a run logged")
    logs.add_argument("--step", metavar="STEP", help="only of this step")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the run has settled")
    watch = _add_view(verbs, "watch", "show what happens to a run until it has settled")
    watch.add_argument(
        "--after-seq", type=amount, default=0, metavar="N", help="only what came after this seq"
    )
    add_timeout(_add_view(verbs, "result", "wait for a run's output"))
    output = _add_view(verbs, "output", "print the output of a run, or of a step, as it is now")
    output.add_argument("--step", metavar="STEP", help="of this step")


def _add_view(verbs: Verbs, name: str, text: str) -> CommandParser:
    parser = add_client_verb(verbs, name, text)
    add_target(parser)
    return parser


def _add_operations(verbs: Verbs) -> None:
    retry = _add_view(verbs, "retry", "go on with a failed run from the step that failed")
    retry.add_argument(
        "--step", metavar="STEP", help="whose input is edited, when several failed: lines[3]/pack"
    )
    _add_repair(retry)
    redrive = _add_view(
        verbs, "redrive", "do a failed run again from one of its steps on, wherever it failed"
    )
    redrive.add_argument(
        "step",
        metavar="STEP",
        help="done again with all that comes after it, also what had completed, and each under a "
        "new idempotency key; what came before keeps its output (`towpath get RUN` lists the "
        "steps). To go on from the step that failed, use `towpath retry`",
    )
    _add_repair(redrive)
    restart = _add_view(verbs, "restart", "start a new run as a settled one was started")
    restart.add_argument("--version", type=count, metavar="N", help="default: the one it had")
    restart.add_argument("--request-id", metavar="ID", help="repeats with this id start nothing")
    restart.add_argument("--wait", action="store_true", help="wait for the result of the new run")
    add_timeout(restart)
    add_who_and_why(restart)
    purge = add_client_verb(verbs, "purge", "delete settled runs")
    purge.add_argument("run_id", nargs="?", metavar="RUN", help="this one")
    purge.add_argument("--workflow", help="those of this workflow; needs --settled-before")
    purge.add_argument(
        "--settled-before", type=instant, metavar="WHEN", help="as for `list --from`, or 30d"
    )
    purge.add_argument("--limit", type=count, default=1_000, metavar="N", help="default: 1000")
    purge.add_argument("--all", action="store_true", help="all of them, in lots of --limit")
    purge.add_argument("--dry-run", action="store_true", help="say what would be deleted")
    add_who_and_why(purge)


def _add_repair(parser: CommandParser) -> None:
    value = parser.add_mutually_exclusive_group()
    value.add_argument("--input", metavar="JSON", help="for STEP, instead of its own input")
    value.add_argument("--input-file", metavar="FILE", help="YAML or JSON; - is standard input")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done again, and why it ended"
    )
    parser.add_argument("--request-id", metavar="ID", help="repeats with this id do nothing")
    parser.add_argument("--wait", action="store_true", help="wait for the result")
    add_timeout(parser)
    add_who_and_why(parser)
