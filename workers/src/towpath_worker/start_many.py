"""Starting any number of runs: several messages, the items' order kept, each item on its own.

Messages are sent one after the other, so that the starts are made in the order of the items and
no lot of one caller takes all of an engine's places. When a message gets no answer, the rest is
not sent, and the caller learns of each item what is known.
"""

from collections.abc import Callable, Mapping, Sequence

from towpath_protocol import replies
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.requests import StartMany, StartRun
from towpath_worker.api_errors import ApiError, OutcomeUnknownError, api_error
from towpath_worker.calls import ApiCaller
from towpath_worker.runs import RunHandle, StartManyError
from towpath_worker.starts import StartItem, batches, start_of
from towpath_worker.transport import TransportError
from towpath_worker.values import InvalidValueError, from_json

ANSWER_SECONDS = 30.0
VERB = "run.start-many"

Result = replies.StartedRun | ApiError | TransportError


def starts_of(items: Sequence[StartItem | Mapping[str, object]]) -> list[StartRun]:
    """The requests of the items. Raises what `start_of` raises, naming the item: nothing was
    sent then."""
    starts: list[StartRun] = []
    for index, item in enumerate(items):
        try:
            starts.append(start_of(item))
        except ProtocolError as error:
            raise error.within(f"items[{index}]") from error
        except InvalidValueError as error:
            message = f"items[{index}]: {error}"
            raise InvalidValueError(message, too_large=error.too_large) from error
        except (TypeError, ValueError) as error:
            error.add_note(f"in items[{index}]")
            raise
    return starts


async def start_all(
    caller: ApiCaller, starts: Sequence[StartRun], handle: Callable[..., RunHandle]
) -> Sequence[RunHandle]:
    """The handles of all items, in order. Raises StartManyError when one has none; what every
    call raises when not even the first message was answered and surely none has arrived."""
    results: list[Result] = []
    for batch in batches(starts, bytes_max=caller.connection.payload_bytes_max):
        try:
            answers = await _ask(caller, batch)
        except (TransportError, ApiError) as error:
            unknown = isinstance(error, OutcomeUnknownError)
            if not results and not unknown:
                raise
            results.extend(_not_known(start, error) for start in batch.items)
            rest = starts[len(results) :]
            results.extend(TransportError(f"not sent, since {error}") for _ in rest)
            raise StartManyError(results, _first_failure(results)) from error
        results.extend(_result(answer) for answer in answers)
    started = [result for result in results if isinstance(result, replies.StartedRun)]
    if len(started) < len(results):
        raise StartManyError(results, _first_failure(results))
    return [handle(run.run_id, deduplicated=run.deduplicated) for run in started]


async def _ask(caller: ApiCaller, batch: StartMany) -> Sequence[replies.StartResult]:
    try:
        reply = await caller.call(
            VERB, batch, replies.StartManyResults, answer_seconds=ANSWER_SECONDS
        )
    except ApiError as error:
        if error.code != ErrorCode.TOO_LARGE or len(batch.items) == 1:
            raise
        # Thousands of refusals may not fit into one answer. Asking again starts nothing twice.
        middle = len(batch.items) // 2
        first = await _ask(caller, StartMany(items=batch.items[:middle]))
        return [*first, *await _ask(caller, StartMany(items=batch.items[middle:]))]
    if len(reply.results) != len(batch.items):
        raise ApiError("unreadable", f"{len(reply.results)} answers to {len(batch.items)} starts")
    return reply.results


def _not_known(start: StartRun, error: TransportError | ApiError) -> TransportError | ApiError:
    """What is known of an item whose message was not answered: it has an id of its own."""
    if not isinstance(error, OutcomeUnknownError):
        return error
    return OutcomeUnknownError(
        f"no answer: it may still start; repeat it with request_id={start.request_id!r}, "
        "which starts nothing twice",
        verb=VERB,
        request_id=start.request_id,
    )


def _result(result: replies.StartResult) -> Result:
    if result.run_id is not None:
        return replies.StartedRun(run_id=result.run_id, deduplicated=bool(result.deduplicated))
    if result.error is None:
        return ApiError("unreadable", "the engine answered neither run nor error")
    details = from_json(bytes(result.error.details))
    return api_error(result.error.code, result.error.message, details)


def _first_failure(results: Sequence[Result]) -> ApiError:
    for index, result in enumerate(results):
        if isinstance(result, ApiError):
            return result
        if isinstance(result, TransportError):
            return ApiError("no_answer", f"items[{index}]: {result}")
    raise AssertionError("somebody asked for the failure of starts that all succeeded")
