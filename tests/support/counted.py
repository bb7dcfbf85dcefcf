"""What an engine has counted, read from its metrics as an operator would."""

import re

from towpath_engine.services.engine import Engine


def counted(engine: Engine, name: str, **labels: str) -> float:
    """The value of `towpath_<name>`, summed over the labels that are not given."""
    total = 0.0
    for line in engine.metrics.render().decode().splitlines():
        match = re.fullmatch(rf"towpath_{name}(?:\{{(.*)\}})? (\S+)", line)
        if match is None:
            continue
        found = dict(re.findall(r'(\w+)="([^"]*)"', match.group(1) or ""))
        if all(found.get(label) == value for label, value in labels.items()):
            total += float(match.group(2))
    return total
