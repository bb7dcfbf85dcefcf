"""Answers `P.heartbeat.<queue>`: which of the worker's tokens to cancel, which are dead anyway.

So a cancel push that was lost is caught up within seconds. The first heartbeat for a queue that
nobody deployed yet creates its consumers.
"""

from towpath_engine.bus.interface import ApiReply, ApiRequest
from towpath_engine.core.chance import run_of_token
from towpath_engine.services.queues import Queues
from towpath_engine.services.shell import Shell
from towpath_engine.services.worker_register import WorkerRegister
from towpath_protocol import codec, subjects
from towpath_protocol.dispatch import WorkerHeartbeat, WorkerHeartbeatReply
from towpath_protocol.limits import WireLimits

_TOKENS_MAX = 10_000
_CANCELLED = frozenset({"cancelled", "timed_out"})


class WorkerHeartbeats:
    """One statement (or two) per heartbeat, whatever the number of tokens."""

    def __init__(
        self,
        shell: Shell,
        *,
        queues: Queues,
        register: WorkerRegister,
        limits: WireLimits,
    ) -> None:
        self._shell = shell
        self._queues = queues
        self._register = register
        self._limits = limits

    async def answer(self, request: ApiRequest) -> ApiReply:
        """Raises ProtocolError for a bad request, StoreUnavailable without a database."""
        at = self._register.now()
        queue = subjects.parse_heartbeat(request.subject, self._shell.prefix)
        beat = codec.decode(request.body, WorkerHeartbeat, limits=self._limits)
        self._shell.metrics.worker_heartbeats.labels(queue=queue).inc()
        await self._queues.ensure([queue])
        self._register.saw(queue, beat, at)
        pairs: list[tuple[str, str]] = []
        stale: list[str] = []
        for token in beat.tokens[:_TOKENS_MAX]:
            run_id = run_of_token(token)
            if run_id is None:
                stale.append(token)
            else:
                pairs.append((run_id, token))
        cancel: list[str] = []
        if pairs:
            live = await self._shell.store.current_tokens(pairs)
            cancel += [token for token, is_cancelling in live.items() if is_cancelling]
            dead = [(run_id, token) for run_id, token in pairs if token not in live]
            if dead:
                statuses = await self._shell.store.run_statuses(
                    sorted({run_id for run_id, _ in dead})
                )
                for run_id, token in dead:
                    ended = statuses.get(run_id) in _CANCELLED
                    (cancel if ended else stale).append(token)
        reply = WorkerHeartbeatReply(cancel=tuple(cancel), stale=tuple(stale))
        return ApiReply(body=codec.encode(reply))
