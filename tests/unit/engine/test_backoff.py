"""Pauses between the tries of the engine's services."""

from towpath_engine.services.backoff import backoff_seconds


def test_each_failure_in_a_row_doubles_the_pause_up_to_the_longest() -> None:
    pauses = [backoff_seconds(count, initial=0.1, longest=0.5) for count in (1, 2, 3, 4)]
    assert pauses == [0.1, 0.2, 0.4, 0.5]


def test_a_server_that_is_gone_for_days_is_tried_again_all_the_same() -> None:
    assert backoff_seconds(1_000_000, initial=0.1, longest=5.0) == 5.0
