import re
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from towpath_engine import metrics as metrics_module
from towpath_engine.metrics import Metrics


def test_two_engines_in_one_process_do_not_share_their_counts() -> None:
    one, two = Metrics(), Metrics()
    one.timers_armed.set(5)
    assert b"towpath_timer_armed 5.0" in one.render()
    assert b"towpath_timer_armed 0.0" in two.render()


def test_names_are_ours_and_no_label_can_hold_a_run() -> None:
    metrics = Metrics()
    found = [item for item in vars(metrics).values() if isinstance(item, MetricWrapperBase)]
    assert len(found) > 30
    for item in found:
        (family,) = item.describe()
        assert re.fullmatch(r"towpath_[a-z][a-z0-9_]*", family.name)
        assert family.documentation
    source = Path(metrics_module.__file__).read_text()
    for label in ("run_id", "key", "token", "step", "worker_id"):
        assert f'"{label}"' not in source
