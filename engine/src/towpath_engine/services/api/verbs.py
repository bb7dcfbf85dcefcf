"""Which handler answers which verb of the API."""

from collections.abc import Mapping

from msgspec import Struct

from towpath_engine.services.admission import Admission
from towpath_engine.services.api.commands import Commands
from towpath_engine.services.api.dead_letters import DeadLetterDesk
from towpath_engine.services.api.explain import Explain
from towpath_engine.services.api.lists import Lists
from towpath_engine.services.api.operations import Operations
from towpath_engine.services.api.pauses import PauseHandlers
from towpath_engine.services.api.queries import Queries
from towpath_engine.services.api.records import Records
from towpath_engine.services.api.restarts import Restarts
from towpath_engine.services.api.router import Handler, RequestReader
from towpath_engine.services.api.workflows import Workflows
from towpath_engine.services.definitions import Definitions
from towpath_engine.services.inbound import Inbound
from towpath_engine.services.queue_look import QueueLook
from towpath_engine.services.queues import Queues
from towpath_engine.services.result_waiters import ResultWaiters
from towpath_engine.services.shell import Shell
from towpath_engine.settings import Settings
from towpath_engine.wiring import core_limits, retention_rules


class ApiServices(Struct, frozen=True, kw_only=True):
    """The services of an engine that requests reach."""

    admission: Admission
    definitions: Definitions
    queues: Queues
    waiters: ResultWaiters
    inbound: Inbound


def handlers(
    shell: Shell, *, settings: Settings, reader: RequestReader, services: ApiServices
) -> Mapping[str, Handler]:
    """Verb → handler, for every verb that is built."""
    look = QueueLook(shell, live_seconds=settings.worker_live_seconds)
    return {
        **_of_runs(shell, settings, reader, services),
        **_of_operators(shell, settings, reader, services),
        "run.explain": Explain(shell, look=look, reader=reader).explain,
        **_of_lists(Lists(shell, look=look, reader=reader)),
    }


def _of_runs(
    shell: Shell, settings: Settings, reader: RequestReader, services: ApiServices
) -> Mapping[str, Handler]:
    commands = Commands(shell, reader=reader, items_max=settings.api_item_count_max)
    restarts = Restarts(shell, reader=reader)
    operations = Operations(shell, reader=reader)
    queries = Queries(store=shell.store, waiters=services.waiters, reader=reader)
    return {
        "run.start": commands.start,
        "run.start-many": commands.start_many,
        "run.signal": commands.signal,
        "run.signal-with-start": commands.signal_with_start,
        "run.cancel": commands.cancel,
        "run.restart": restarts.restart,
        "run.retry": operations.retry,
        "run.redrive": operations.redrive,
        "run.get": queries.get,
        "run.output": queries.output,
        "run.result": queries.result,
        "run.list": queries.list_runs,
        "run.logs": queries.logs,
    }


def _of_operators(
    shell: Shell, settings: Settings, reader: RequestReader, services: ApiServices
) -> Mapping[str, Handler]:
    workflows = Workflows(
        store=shell.store, definitions=services.definitions, queues=services.queues, reader=reader
    )
    pauses = PauseHandlers(
        shell, admission=services.admission, reader=reader, pauses_max=settings.pause_count_max
    )
    records = Records(
        shell, reader=reader, limits=core_limits(settings), size=retention_rules(settings).size
    )
    desk = DeadLetterDesk(store=shell.store, inbound=services.inbound, reader=reader)
    return {
        "workflow.deploy": workflows.deploy,
        "workflow.list": workflows.list_all,
        "workflow.get": workflows.get,
        "workflow.pause": pauses.pause_workflow,
        "workflow.resume": pauses.resume_workflow,
        "workflow.retention": records.retention,
        "run.pause": pauses.pause_run,
        "run.resume": pauses.resume_run,
        "run.history": records.history,
        "run.purge": records.purge,
        "queue.pause": pauses.pause_queue,
        "queue.resume": pauses.resume_queue,
        "task.pause": pauses.pause_task,
        "task.resume": pauses.resume_task,
        "pause.list": pauses.list_all,
        "dead-letter.list": desk.page,
        "dead-letter.get": desk.get,
        "dead-letter.discard": desk.discard,
        "dead-letter.replay": desk.replay,
    }


def _of_lists(lists: Lists) -> Mapping[str, Handler]:
    return {"queue.list": lists.queues, "worker.list": lists.workers}
