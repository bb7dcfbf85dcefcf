"""Settings → the option structs of the parts, in one place."""

from importlib.metadata import version

from towpath_engine.bus.settings import BusSettings
from towpath_engine.core.expressions.limits import (
    ExpressionLimits,
    RuntimeLimits,
    StaticLimits,
)
from towpath_engine.core.limits import CoreLimits
from towpath_engine.services.retention import RetentionRules
from towpath_engine.settings import Settings
from towpath_engine.store.past import PurgeSize
from towpath_protocol import subjects
from towpath_protocol.limits import WireLimits


def core_limits(settings: Settings) -> CoreLimits:
    """The limits that the core enforces."""
    return CoreLimits(
        payload_bytes_max=settings.payload_bytes_max,
        metadata_bytes_max=settings.metadata_bytes_max,
        error_bytes_max=settings.error_bytes_max,
        progress_bytes_max=settings.progress_bytes_max,
        dispatch_bytes_max=settings.dispatch_bytes_max,
        transitions_per_decision_max=settings.transitions_per_decision_max,
        transitions_per_run_max=settings.transitions_per_run_max,
        open_steps_per_run_max=settings.open_steps_per_run_max,
        joined_output_bytes_max=settings.joined_output_bytes_max,
        signals_kept_max=settings.signals_kept_max,
        signals_kept_bytes_max=settings.signals_kept_bytes_max,
        releases_in_a_row_max=settings.releases_in_a_row_max,
        events_per_report_max=settings.events_per_report_max,
        ack_wait_ms=int(settings.ack_wait_seconds * 1_000),
        reply=subjects.reply_prefix(settings.prefix),
    )


def expression_limits(settings: Settings) -> ExpressionLimits:
    """What the expressions of a definition may cost."""
    return ExpressionLimits(
        static=StaticLimits(
            source_length_max=settings.expression_source_length_max,
            nodes_max=settings.expression_nodes_max,
            depth_max=settings.expression_depth_max,
            fold_depth_max=settings.expression_fold_depth_max,
            fold_count_max=settings.expression_fold_count_max,
        ),
        runtime=RuntimeLimits(
            condition_fuel=settings.expression_condition_fuel,
            template_fuel=settings.expression_template_fuel,
            list_length_max=settings.expression_list_length_max,
            result_bytes_max=settings.expression_result_bytes_max,
        ),
        sources_bytes_max=settings.expression_length_total_max,
    )


def retention_rules(settings: Settings) -> RetentionRules:
    """How long settled runs are kept, and how fast they are deleted."""
    return RetentionRules(
        kept_seconds=settings.retention_seconds,
        size=PurgeSize(
            runs_max=settings.purge_run_count_max,
            transitions_max=settings.purge_transition_count_max,
        ),
        pause_seconds=settings.purge_pause_seconds,
        idle_seconds=settings.purge_seconds,
    )


def wire_limits(settings: Settings) -> WireLimits:
    """The limits of messages and requests."""
    return WireLimits(
        payload_bytes_max=settings.payload_bytes_max,
        input_bytes_max=settings.payload_bytes_max,
        output_bytes_max=settings.payload_bytes_max,
        context_bytes_max=settings.context_bytes_max,
        metadata_bytes_max=settings.metadata_bytes_max,
        error_bytes_max=settings.error_bytes_max,
        progress_bytes_max=settings.progress_bytes_max,
        logs_bytes_max=settings.logs_bytes_max,
        headers_bytes_max=settings.headers_bytes_max,
        dispatch_bytes_max=settings.dispatch_bytes_max,
        definition_bytes_max=settings.definition_bytes_max,
        depth_max=settings.json_depth_max,
        items_max=settings.start_many_count_max,
    )


def bus_settings(settings: Settings) -> BusSettings:
    """How the bus connects, and the sizes of its streams."""
    return BusSettings(
        urls=tuple(url.strip() for url in settings.nats_url.split(",") if url.strip()),
        prefix=settings.prefix,
        user=settings.nats_user or None,
        password=settings.nats_password or None,
        token=settings.nats_token or None,
        credentials_file=settings.nats_credentials_file or None,
        nkey_seed_file=settings.nats_nkey_seed_file or None,
        tls_ca_file=settings.nats_tls_ca_file or None,
        tls_cert_file=settings.nats_tls_cert_file or None,
        tls_key_file=settings.nats_tls_key_file or None,
        tls_hostname=settings.nats_tls_hostname or None,
        tls_handshake_first=settings.nats_tls_handshake_first,
        inbox_prefix=settings.nats_inbox_prefix,
        replicas=settings.stream_replicas,
        dispatch_bytes_max=settings.stream_dispatch_bytes_max,
        in_bytes_max=settings.stream_in_bytes_max,
        events_bytes_max=settings.stream_events_bytes_max,
        advisories_bytes_max=settings.stream_advisory_bytes_max,
        events_age_max_s=settings.stream_events_age_seconds,
        queues_max=settings.queue_count_max,
        ack_wait_s=settings.ack_wait_seconds,
        ack_pending_max=settings.ack_pending_count_max,
        payload_bytes_needed=settings.dispatch_bytes_max + settings.headers_bytes_max,
        publish_window=settings.publish_window_count_max,
        publish_queue_max=settings.publish_queue_count_max,
        publish_timeout_s=settings.publish_timeout_seconds,
        service_version=version("towpath-engine"),
    )
