"""Keys and request ids: who holds them. Claimed before any run is locked, in order."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from towpath_engine.core.model import Run
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.store.errors import StoreUnavailable
from towpath_engine.store.interface import KeyClaim, KeyHolder
from towpath_engine.store.session import Connection, Record, execute, fetch

Name = tuple[str, str]
"""(workflow, key) or (workflow, request id)."""

_Claim = Callable[[Mapping[Name, str]], Awaitable[list[Record]]]
_Find = Callable[[Sequence[Name]], Awaitable[dict[Name, str]]]

_ROUNDS_MAX = 5


async def claim_keys(connection: Connection, claims: Sequence[KeyClaim]) -> list[KeyHolder]:
    """See StoreTransaction.claim_keys."""
    first_of_request: dict[Name, KeyClaim] = {}
    for claim in claims:
        if claim.request_id is not None:
            first_of_request.setdefault((claim.workflow, claim.request_id), claim)
    requests = await claim_requests(
        connection, {name: claim.run_id for name, claim in first_of_request.items()}
    )
    keys: dict[Name, str] = {}
    for claim in claims:
        if claim.key is not None and _has_request(claim, requests):
            keys.setdefault((claim.workflow, claim.key), claim.run_id)
    holders = resolve_claims(claims, requests, await claim_names(connection, keys))
    await _free_requests_of_losers(connection, claims, holders, requests)
    return holders


def _has_request(claim: KeyClaim, requests: Mapping[Name, str]) -> bool:
    if claim.request_id is None:
        return True
    return requests[claim.workflow, claim.request_id] == claim.run_id


def resolve_claims(
    claims: Sequence[KeyClaim], requests: Mapping[Name, str], keys: Mapping[Name, str]
) -> list[KeyHolder]:
    """Who holds what each claim wanted. Pure, for both stores: `requests` and `keys` say who holds
    each name after the claims of this batch."""
    holders: list[KeyHolder] = []
    by_claimant: dict[str, str] = {}
    for claim in claims:
        if not _has_request(claim, requests):
            assert claim.request_id is not None
            first = requests[claim.workflow, claim.request_id]
            # The first of this batch with the request id may itself have lost its key.
            holders.append(KeyHolder(run_id=by_claimant.get(first, first), by_request=True))
            continue
        holder = claim.run_id if claim.key is None else keys[claim.workflow, claim.key]
        by_claimant[claim.run_id] = holder
        holders.append(KeyHolder(run_id=holder))
    return holders


async def _free_requests_of_losers(
    connection: Connection,
    claims: Sequence[KeyClaim],
    holders: Sequence[KeyHolder],
    requests: Mapping[Name, str],
) -> None:
    lost = [
        (claim.workflow, claim.request_id, claim.run_id)
        for claim, holder in zip(claims, holders, strict=True)
        if claim.request_id is not None
        and holder.run_id != claim.run_id
        and requests[claim.workflow, claim.request_id] == claim.run_id
    ]
    await _free_requests(connection, lost)


async def _free_requests(
    connection: Connection, names: Sequence[tuple[str, str | None, str]]
) -> None:
    if names:
        await execute(
            connection,
            "run_request_free",
            workflow=[workflow for workflow, _, _ in names],
            request_id=[request for _, request, _ in names],
            run_id=[run_id for _, _, run_id in names],
        )


async def claim_names(connection: Connection, wanted: Mapping[Name, str]) -> dict[Name, str]:
    """Claim (workflow, key) pairs for run ids; who holds each now."""

    async def claim(rest: Mapping[Name, str]) -> list[Record]:
        workflow, key, run_id = _columns(rest)
        return await fetch(connection, "run_key_claim", workflow=workflow, key=key, run_id=run_id)

    return await _claim(wanted, claim, lambda held: find_keys(connection, held))


async def claim_requests(connection: Connection, wanted: Mapping[Name, str]) -> dict[Name, str]:
    """Claim (workflow, request id) pairs for run ids; who holds each now."""

    async def claim(rest: Mapping[Name, str]) -> list[Record]:
        workflow, request_id, run_id = _columns(rest)
        return await fetch(
            connection,
            "run_request_claim",
            workflow=workflow,
            request_id=request_id,
            run_id=run_id,
        )

    return await _claim(wanted, claim, lambda held: find_requests(connection, held))


def _columns(rest: Mapping[Name, str]) -> tuple[list[str], list[str], list[str]]:
    return [workflow for workflow, _ in rest], [text for _, text in rest], list(rest.values())


async def _claim(wanted: Mapping[Name, str], claim: _Claim, find: _Find) -> dict[Name, str]:
    """Claim names until each has a holder; `claim` returns those that were won."""
    holders: dict[Name, str] = {}
    # A holder may free its name between the failed claim and the look at it: claim again.
    for _ in range(_ROUNDS_MAX):
        rest = {name: run_id for name, run_id in wanted.items() if name not in holders}
        if not rest:
            return holders
        won = {(row[0], row[1]) for row in await claim(rest)}
        holders.update({name: rest[name] for name in won})
        held = [name for name in rest if name not in won]
        if held:
            holders.update(await find(held))
    message = "names change hands too fast to be claimed"
    raise StoreUnavailable(message)


async def find_requests(connection: Connection, names: Sequence[Name]) -> dict[Name, str]:
    """See StoreTransaction.find_requests."""
    rows = await fetch(
        connection,
        "run_request_find",
        workflow=[workflow for workflow, _ in names],
        request_id=[request for _, request in names],
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def find_keys(connection: Connection, names: Sequence[Name]) -> dict[Name, str]:
    """See StoreTransaction.find_keys."""
    rows = await fetch(
        connection,
        "run_key_find",
        workflow=[workflow for workflow, _ in names],
        key=[key for _, key in names],
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def free_keys(connection: Connection, settled: Sequence[Run]) -> None:
    """Free the keys of runs that have settled (or never came to be)."""
    keyed = [run for run in settled if run.key is not None]
    if keyed:
        await execute(
            connection,
            "run_key_free",
            workflow=[run.workflow for run in keyed],
            key=[run.key for run in keyed],
            run_id=[run.id for run in keyed],
        )


async def claim_for_new_runs(connection: Connection, runs: Sequence[Run]) -> set[str]:
    """Make sure that new runs hold their names; the ids of those that do.

    After `claim_keys` this finds every name claimed. It matters to a run that takes over the key of
    one that settled in the same batch. A run that is settled already needs no key.
    """
    requests: dict[Name, str] = {}
    keys: dict[Name, str] = {}
    for run in runs:
        if run.request_id is not None:
            requests.setdefault((run.workflow, run.request_id), run.id)
        if _needs_key(run):
            keys.setdefault((run.workflow, run.key or ""), run.id)
    request_holders = await claim_requests(connection, requests)
    key_holders = await claim_names(connection, keys)
    holding = {
        run.id
        for run in runs
        if (run.request_id is None or request_holders[run.workflow, run.request_id] == run.id)
        and (not _needs_key(run) or key_holders[run.workflow, run.key or ""] == run.id)
    }
    # Who lost one name must not keep the other.
    lost = [run for run in runs if run.id not in holding]
    await free_keys(connection, lost)
    await _free_requests(
        connection, [(r.workflow, r.request_id, r.id) for r in lost if r.request_id is not None]
    )
    return holding


def _needs_key(run: Run) -> bool:
    return run.key is not None and run.status not in SETTLED_RUN
