"""Every setting of the engine: its name, its default, its unit and what it does, in one place.

A setting `x` comes from the environment (`TOWPATH_X`), else from the TOML file that
`TOWPATH_CONFIG` or `--config` names (key `x`), else from its default. They are read once, checked,
frozen, and passed down. A name that does not exist is an error, because a misspelt limit that is
silently ignored is found in production.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from towpath_engine.secrets import MASK, mask_secrets, secrets_of_url

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

ENV_PREFIX = "TOWPATH_"
CONFIG_VARIABLE = "TOWPATH_CONFIG"

# Kubernetes adds such variables to every container when a Service is called `towpath`; the worker
# SDK and the test suite have variables of their own.
_FOREIGN = re.compile(r"TOWPATH_((SERVICE_HOST|SERVICE_PORT|PORT)(_.*)?|TEST_.*|WORKER_.*|CONFIG)")

Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=10 * 365 * 86_400)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console"]


class SettingsError(Exception):
    """A setting is unknown or its value can't be used. The message names it and the fix."""


class SettingInfo(Struct, frozen=True, kw_only=True):
    """What `towpath settings` says about one setting. Secrets in `value` are masked."""

    name: str
    variable: str
    value: str
    default: str
    unit: str
    source: str
    """`environment`, `file` or `default`."""
    description: str


class Settings(Struct, frozen=True, kw_only=True):
    """The engine's settings. `_bytes_max` are bytes, `_count_max` counts, `_seconds` seconds."""

    # NATS
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: str = ""
    nats_token: str = ""
    nats_credentials_file: str = ""
    nats_nkey_seed_file: str = ""
    nats_tls_ca_file: str = ""
    nats_tls_cert_file: str = ""
    nats_tls_key_file: str = ""
    nats_tls_hostname: str = ""
    nats_tls_handshake_first: bool = False
    nats_inbox_prefix: Annotated[str, Meta(pattern=r"^(_INBOX|_R_)[A-Za-z0-9_-]*\Z")] = "_INBOX"
    prefix: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,31}\Z")] = "towpath"
    stream_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    stream_dispatch_bytes_max: Size = 1 * GIB
    stream_in_bytes_max: Size = 1 * GIB
    stream_advisory_bytes_max: Size = 64 * MIB
    stream_events_bytes_max: Size = 1 * GIB
    stream_events_age_seconds: Seconds = 7 * 86_400.0
    publish_window_count_max: Count = 1_024
    publish_queue_count_max: Count = 20_000
    publish_timeout_seconds: Seconds = 5.0
    ack_wait_seconds: Seconds = 30.0
    ack_pending_count_max: Count = 10_000
    pull_credit_count_max: Count = 2_000
    queue_count_max: Count = 256
    dispatch_window_count_max: Count = 10_000
    pause_count_max: Annotated[int, Meta(ge=1, le=4_000)] = 1_000
    require_sender: bool = True

    # Postgres
    postgres_url: str = "postgresql://127.0.0.1:5432/postgres"
    postgres_schema: Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_]{0,47}\Z")] = "towpath"
    postgres_pool_size: Annotated[int, Meta(ge=2, le=1_000)] = 8
    postgres_statement_timeout_seconds: Seconds = 30.0

    # The pipeline
    batch_count_max: Count = 256
    transactions_in_flight_max: Annotated[int, Meta(ge=1, le=64)] = 3
    run_cache_count_max: Annotated[int, Meta(ge=0)] = 10_000
    run_cache_bytes_max: Annotated[int, Meta(ge=0)] = 256 * MIB
    definition_cache_count_max: Count = 1_000
    timer_horizon_seconds: Seconds = 60.0
    timer_count_max: Count = 200_000

    # Several engines
    lease_seconds: Annotated[float, Meta(ge=2, le=60)] = 8.0
    lease_tick_seconds: Annotated[float, Meta(ge=0.05, le=10)] = 0.5
    lease_release_seconds: Annotated[float, Meta(gt=0, le=10)] = 2.0

    # Sweeps
    timer_sweep_seconds: Seconds = 5.0
    outbox_sweep_seconds: Seconds = 2.0
    outbox_retry_seconds: Seconds = 5.0
    dispatch_audit_seconds: Seconds = 10.0
    dispatch_watch_seconds: Seconds = 1.0
    stream_check_seconds: Seconds = 2.0
    parked_sweep_seconds: Seconds = 1.0
    child_sweep_seconds: Seconds = 60.0
    reason_sweep_seconds: Seconds = 15.0
    clock_sync_seconds: Seconds = 10.0
    park_seconds: Seconds = 60.0
    parked_count_max: Count = 10_000
    dead_letter_count_max: Count = 100_000
    dead_letter_bytes_max: Size = 1 * GIB
    retention_seconds: Annotated[float, Meta(ge=0, le=100 * 365 * 86_400)] = 30 * 86_400.0
    purge_seconds: Seconds = 60.0
    purge_pause_seconds: Seconds = 0.2
    purge_run_count_max: Annotated[int, Meta(ge=1, le=10_000)] = 500
    purge_transition_count_max: Count = 50_000

    worker_live_seconds: Seconds = 15.0
    worker_forget_seconds: Seconds = 86_400.0
    worker_count_max: Count = 100_000

    # Limits of the wire
    payload_bytes_max: Size = 256 * KIB
    context_bytes_max: Size = 8 * KIB
    metadata_bytes_max: Size = 64 * KIB
    error_bytes_max: Size = 16 * KIB
    progress_bytes_max: Size = 16 * KIB
    logs_bytes_max: Size = 64 * KIB
    headers_bytes_max: Size = 16 * KIB
    dispatch_bytes_max: Size = 768 * KIB
    definition_bytes_max: Size = 1 * MIB
    json_depth_max: Annotated[int, Meta(ge=4, le=64)] = 64
    start_many_count_max: Annotated[int, Meta(ge=1, le=10_000)] = 10_000

    # Limits of a run
    transitions_per_decision_max: Count = 1_000
    transitions_per_run_max: Count = 1_000_000
    open_steps_per_run_max: Count = 100_000
    joined_output_bytes_max: Size = 8 * MIB
    signals_kept_max: Count = 10_000
    signals_kept_bytes_max: Size = 8 * MIB
    releases_in_a_row_max: Count = 100
    events_per_report_max: Count = 100

    # Limits of an expression
    expression_length_total_max: Count = 64 * KIB
    expression_source_length_max: Count = 4_096
    expression_nodes_max: Count = 500
    expression_depth_max: Annotated[int, Meta(ge=1, le=32)] = 32
    expression_fold_depth_max: Count = 2
    expression_fold_count_max: Count = 8
    expression_condition_fuel: Count = 20_000
    expression_template_fuel: Count = 100_000
    expression_list_length_max: Count = 10_000
    expression_result_bytes_max: Size = 256 * KIB

    # The process
    api_concurrency: Count = 256
    api_poll_count_max: Count = 10_000
    api_item_count_max: Count = 20_000
    http_host: str = "127.0.0.1"
    http_port: Port = 8080
    drain_seconds: Seconds = 20.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "json"


# (unit, description) by name. A test holds this to the fields above.
DOCUMENTATION: Mapping[str, tuple[str, str]] = {
    "nats_url": ("URL", "NATS servers, comma-separated"),
    "nats_user": ("", "user of the NATS servers, with nats_password; a URL may carry both"),
    "nats_password": ("", "password of nats_user; a secret, never shown"),
    "nats_token": ("", "token of the NATS servers; a secret, never shown"),
    "nats_credentials_file": ("path", "credentials file (JWT and nkey); empty: none"),
    "nats_nkey_seed_file": ("path", "file with the nkey seed; empty: none"),
    "nats_tls_ca_file": ("path", "authority to trust instead of the system's; demands TLS"),
    "nats_tls_cert_file": ("path", "client certificate for TLS; empty: none"),
    "nats_tls_key_file": ("path", "key of the client certificate; empty: none"),
    "nats_tls_hostname": ("", "name that the server's certificate must bear; empty: the URL's"),
    "nats_tls_handshake_first": ("", "begin with TLS; the server must be configured so"),
    "nats_inbox_prefix": ("", "where replies to the engine arrive; begins with _INBOX or _R_"),
    "prefix": ("", "first token of every subject; its upper case names the streams"),
    "stream_replicas": ("servers", "replicas of every stream"),
    "stream_dispatch_bytes_max": ("bytes", "byte limit of the stream P_DISPATCH"),
    "stream_in_bytes_max": ("bytes", "byte limit of the stream P_IN"),
    "stream_advisory_bytes_max": ("bytes", "byte limit of the stream P_ADV"),
    "stream_events_bytes_max": ("bytes", "byte limit of the stream P_EVENTS"),
    "stream_events_age_seconds": ("s", "how long P_EVENTS keeps an event"),
    "publish_window_count_max": ("messages", "published messages that may await their PubAck"),
    "publish_queue_count_max": ("messages", "messages that may wait for the publish window"),
    "publish_timeout_seconds": ("s", "without a PubAck after this a message is published again"),
    "ack_wait_seconds": ("s", "a message delivered and not acknowledged is delivered again"),
    "ack_pending_count_max": ("messages", "delivered, unacknowledged messages of a consumer"),
    "pull_credit_count_max": ("messages", "messages the engine holds before it stops pulling"),
    "queue_count_max": ("queues", "queues of an installation"),
    "dispatch_window_count_max": ("dispatches", "undone dispatches of a queue in the stream"),
    "pause_count_max": ("pauses", "pauses of workflows, versions, tasks and queues"),
    "require_sender": ("", "refuse signal and start messages without Towpath-Sent-By"),
    "postgres_url": ("URL", "the database"),
    "postgres_schema": ("", "schema of this installation's tables"),
    "postgres_pool_size": ("connections", "connections of this engine"),
    "postgres_statement_timeout_seconds": ("s", "a statement that takes longer is cancelled"),
    "batch_count_max": ("events", "events of one transaction"),
    "transactions_in_flight_max": ("transactions", "batches that commit at the same time"),
    "run_cache_count_max": ("runs", "runs kept in memory"),
    "run_cache_bytes_max": ("bytes", "memory of the runs kept, estimated"),
    "definition_cache_count_max": ("versions", "workflow versions kept parsed in memory"),
    "timer_horizon_seconds": ("s", "timers nearer than this are armed in memory"),
    "timer_count_max": ("timers", "timers armed in memory"),
    "lease_seconds": ("s", "a partition of an engine that says nothing this long is another's"),
    "lease_tick_seconds": ("s", "interval at which an engine renews its partitions"),
    "lease_release_seconds": ("s", "how long an engine finishes what came of a partition it gives"),
    "timer_sweep_seconds": ("s", "interval of the sweep for timers that a crash left"),
    "outbox_sweep_seconds": ("s", "interval of the sweep for unconfirmed messages"),
    "outbox_retry_seconds": ("s", "age at which the sweep publishes a message again"),
    "dispatch_audit_seconds": ("s", "interval of the search for lost dispatches"),
    "dispatch_watch_seconds": ("s", "interval of the look at what the consumers delivered"),
    "stream_check_seconds": ("s", "interval of the check for a lost or rolled-back stream"),
    "parked_sweep_seconds": ("s", "interval of the sweep for parked signals"),
    "child_sweep_seconds": ("s", "interval of the sweep for lost messages between runs"),
    "reason_sweep_seconds": ("s", "interval of the count of open runs and those without a reason"),
    "clock_sync_seconds": ("s", "interval at which the database's clock is read"),
    "park_seconds": ("s", "how long a signal waits for a run that does not exist yet"),
    "parked_count_max": ("signals", "signals parked at the same time"),
    "dead_letter_count_max": ("rows", "dead letters kept; beyond it counted and logged"),
    "dead_letter_bytes_max": ("bytes", "bytes of dead letters kept; beyond it counted and logged"),
    "retention_seconds": ("s", "how long settled runs are kept, by default; 0: for ever"),
    "purge_seconds": ("s", "interval of the look for runs that were kept long enough"),
    "purge_pause_seconds": ("s", "pause between two batches of a purge"),
    "purge_run_count_max": ("runs", "runs that one transaction of a purge deletes"),
    "purge_transition_count_max": ("transitions", "transitions that it deletes with them"),
    "worker_live_seconds": ("s", "a worker heard of since then counts as live"),
    "worker_forget_seconds": ("s", "a worker not heard of for so long is forgotten"),
    "worker_count_max": ("workers", "workers that are remembered, on all queues"),
    "payload_bytes_max": ("bytes", "payload, input or output"),
    "context_bytes_max": ("bytes", "context of a run"),
    "metadata_bytes_max": ("bytes", "metadata of a run"),
    "error_bytes_max": ("bytes", "error of a report"),
    "progress_bytes_max": ("bytes", "progress of a heartbeat"),
    "logs_bytes_max": ("bytes", "log lines of a report"),
    "headers_bytes_max": ("bytes", "headers of a message"),
    "dispatch_bytes_max": ("bytes", "a dispatch; over it the step fails with TooLarge"),
    "definition_bytes_max": ("bytes", "a workflow definition"),
    "json_depth_max": ("levels", "nesting of any JSON that comes in"),
    "start_many_count_max": ("runs", "items of one run.start-many"),
    "transitions_per_decision_max": ("transitions", "transitions of one event"),
    "transitions_per_run_max": ("transitions", "transitions of one run"),
    "open_steps_per_run_max": ("steps", "steps of one run that are open at the same time"),
    "joined_output_bytes_max": (
        "bytes",
        "items of a map; outputs of its items or of branches, joined; signals of one wait",
    ),
    "signals_kept_max": ("signals", "signals a run keeps for later waits"),
    "signals_kept_bytes_max": ("bytes", "payloads of those signals together"),
    "releases_in_a_row_max": ("releases", "releases in a row before the attempt fails as NotRun"),
    "events_per_report_max": ("events", "custom events of one report"),
    "expression_length_total_max": ("code points", "all expressions of a definition"),
    "expression_source_length_max": ("code points", "one expression"),
    "expression_nodes_max": ("nodes", "syntax tree of an expression, macros expanded"),
    "expression_depth_max": ("levels", "nesting of an expression"),
    "expression_fold_depth_max": ("levels", "nesting of map, filter, all, exists"),
    "expression_fold_count_max": ("macros", "map, filter, all, exists of one expression"),
    "expression_condition_fuel": ("units", "work of one condition, about a microsecond each"),
    "expression_template_fuel": ("units", "work of one template, about a microsecond each"),
    "expression_list_length_max": ("items", "any list that an expression builds"),
    "expression_result_bytes_max": ("bytes", "result of an expression"),
    "api_concurrency": ("requests", "other API requests handled at once; beyond it 429"),
    "api_poll_count_max": ("requests", "run.result requests that wait at once; beyond it 429"),
    "api_item_count_max": ("items", "run.start-many items handled at once; beyond it 429"),
    "http_host": ("", "address of /livez, /readyz and /metrics"),
    "http_port": ("port", "port of /livez, /readyz and /metrics; 0: any free one"),
    "drain_seconds": ("s", "how long a stopping engine finishes what it has begun"),
    "log_level": ("", "debug, info, warning or error"),
    "log_format": ("", "json (one object a line) or console (for people)"),
}

# A pattern ends in \Z, since $ would let a trailing newline through; people know `$`.
_END = r"\Z"
_IN_WORDS = {
    r"^(_INBOX|_R_)[A-Za-z0-9_-]*": "_INBOX or _R_, then letters, digits, '_' or '-'",
    r"^[a-z][a-z0-9-]{0,31}": "a lower-case letter, then at most 31 of these, digits or '-'",
    r"^[a-z_][a-z0-9_]{0,47}": "a lower-case letter or '_', then at most 47 of these or digits",
}
"""What the patterns of settings demand, for a person."""
_SECRETS = frozenset({"nats_password", "nats_token"})
_HOST = re.compile(r"(\[[^\]]+\]|[^:\[\]]*)(:[0-9]{0,5})?")
_URLS = ("nats_url", "postgres_url")
_FIELDS = {field.name: field for field in msgspec.structs.fields(Settings)}


class LoadedSettings(Struct, frozen=True, kw_only=True):
    """Settings and where each value came from (name → `environment` or `file`)."""

    settings: Settings
    sources: Mapping[str, str]


def load_settings(
    environ: Mapping[str, str], config_file: str | None = None, **overrides: object
) -> LoadedSettings:
    """Read the settings: `overrides` (already typed), then environment, then file, then defaults.

    `config_file` wins over `TOWPATH_CONFIG`. Raises SettingsError with one sentence that names
    the setting, what is wrong with it and how to mend it.
    """
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    path = config_file or environ.get(CONFIG_VARIABLE)
    if path:
        for name, raw in _read_file(Path(path)).items():
            _require_known(name, f"in {path}", name)
            values[name] = _convert(name, raw, f"`{name}` in {path}")
            sources[name] = "file"
    for variable, raw in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX) or _FOREIGN.fullmatch(variable):
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        _require_known(name, "in the environment", variable)
        values[name] = _convert(name, raw, variable)
        sources[name] = "environment"
    values.update(overrides)
    settings = msgspec.convert(values, Settings)
    _check_together(settings)
    return LoadedSettings(settings=settings, sources=sources)


def describe_settings(loaded: LoadedSettings) -> list[SettingInfo]:
    """One entry a setting, in the order of the class, secrets masked."""
    defaults = Settings()
    return [
        SettingInfo(
            name=name,
            variable=ENV_PREFIX + name.upper(),
            value=_show_setting(name, getattr(loaded.settings, name)),
            default=_show(getattr(defaults, name)),
            unit=DOCUMENTATION[name][0],
            source=loaded.sources.get(name, "default"),
            description=DOCUMENTATION[name][1],
        )
        for name in _FIELDS
    ]


def secrets_of(settings: Settings) -> list[str]:
    """Every secret among the settings, decoded: what must never be written anywhere."""
    urls = [*settings.nats_url.split(","), settings.postgres_url]
    found = [secret for url in urls for secret in secrets_of_url(url)]
    found += [getattr(settings, name) for name in sorted(_SECRETS)]
    return [secret for secret in found if secret]


def _read_file(path: Path) -> Mapping[str, object]:
    try:
        text = path.read_bytes().decode()
        return tomllib.loads(text)
    except FileNotFoundError as error:
        raise SettingsError(f"the settings file {path} does not exist") from error
    except OSError as error:
        raise SettingsError(
            f"the settings file {path} can't be read: {error.strerror}; make it a readable file"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the settings file {path} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from error


def _require_known(name: str, where: str, shown: str) -> None:
    if name in _FIELDS:
        return
    near = difflib.get_close_matches(name, _FIELDS, n=1, cutoff=0.6)
    if near and shown.startswith(ENV_PREFIX):
        near = [ENV_PREFIX + near[0].upper()]
    hint = f"did you mean {near[0]}?" if near else "`towpath settings` lists the names"
    raise SettingsError(f"unknown setting {shown} {where}: {hint}")


def _convert(name: str, raw: object, shown: str) -> object:
    kind = _FIELDS[name].type
    from_text = isinstance(raw, str)
    try:
        return msgspec.convert(raw, kind, strict=not from_text)
    except msgspec.ValidationError as error:
        value = MASK if name in _SECRETS else mask_secrets(repr(raw))
        raise SettingsError(f"{shown}={value} can't be used: give {_expected(name)}") from error


def _expected(name: str) -> str:
    """What a value must be, in words, made from the type and its constraints."""
    kind = _FIELDS[name].type
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    base, *notes = get_args(kind) or (kind,)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[base]
    if unit := DOCUMENTATION[name][0]:
        words += f" ({unit})"
    for note in notes:
        if note.pattern is not None:
            words += f": {_IN_WORDS[note.pattern.removesuffix(_END)]}"
        bounds = [("at least", note.ge), ("more than", note.gt), ("at most", note.le)]
        words += "".join(f", {label} {bound}" for label, bound in bounds if bound is not None)
    return words


def _check_together(settings: Settings) -> None:
    if bool(settings.nats_tls_cert_file) != bool(settings.nats_tls_key_file):
        raise SettingsError(
            "nats_tls_cert_file and nats_tls_key_file belong together: set both or neither"
        )
    if settings.postgres_pool_size <= settings.transactions_in_flight_max:
        raise SettingsError(
            f"postgres_pool_size ({settings.postgres_pool_size}) must be more than "
            f"transactions_in_flight_max ({settings.transactions_in_flight_max}), "
            "or reads wait for writes"
        )
    if settings.lease_seconds < 4 * settings.lease_tick_seconds:
        raise SettingsError(
            f"lease_seconds ({settings.lease_seconds}) must be at least four times "
            f"lease_tick_seconds ({settings.lease_tick_seconds}), or a late tick loses partitions"
        )
    for name in _URLS:
        _check_url(name, getattr(settings, name))
    _check_identity(settings)


def _check_url(name: str, value: str) -> None:
    """Said here, without the value: libraries would show the part that they stumble over."""
    if not value.strip():
        raise SettingsError(f"{name} is empty: give a URL such as {_show(_FIELDS[name].default)}")
    for url in value.split(",") if name == "nats_url" else [value]:
        if url.strip() and not _is_url(url.strip()):
            raise SettingsError(
                f"{name} is no URL: begin with {_show(_FIELDS[name].default).partition('/')[0]}//, "
                "give the port as a number, and write special characters of user and password "
                "as %XX"
            )


def _is_url(url: str) -> bool:
    """Whether each host has a numeric port or none, and secrets stand where they are masked."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    hosts = parts.netloc.rpartition("@")[2].split(",")
    return ("://" in url or "@" not in url) and all(_HOST.fullmatch(host) for host in hosts)


def _check_identity(settings: Settings) -> None:
    if bool(settings.nats_user) != bool(settings.nats_password):
        raise SettingsError("nats_user and nats_password belong together: set both or neither")
    ways = ("nats_user", "nats_token", "nats_credentials_file", "nats_nkey_seed_file")
    given = [name for name in ways if getattr(settings, name)]
    if len(given) > 1:
        raise SettingsError(f"{' and '.join(given)} say who the engine is: set only one of them")


def _show_setting(name: str, value: object) -> str:
    return MASK if name in _SECRETS and value else _show(value)


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return mask_secrets(str(value))
