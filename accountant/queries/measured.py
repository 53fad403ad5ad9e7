"""What benchmarks.comparison measured of each mechanism, elsewhere: it promises nothing here.

benchmarks/comparison.json ── benchmarks.comparison_page ──▶ measured.json ──▶ a sentence or two
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("measured.json").read_text("utf-8")
    )
    return found


def measured(mechanism: str) -> str:
    """Return what was measured of a mechanism, in words; "" where too little was."""
    return told(_table().get(mechanism))


def told(found: Mapping[str, Any] | None) -> str:
    """Return figures of a mechanism in words."""
    if not found:
        return ""
    *others, last = found["corpora"]
    on = " and ".join(filter(None, (", ".join(others), last)))
    said = [f"{_percent(found['finished'])} were finished"]
    own, zero = found["right label"], found["right label of zero-shot"]
    if own is not None:
        beside = "" if zero is None else f" (without records {_percent(zero)})"
        said.append(f"{_percent(own)} had the right label{beside}")
    loss = found["loss above zero-shot"]
    if loss is not None:
        where = "above" if loss >= 0 else "below"
        said.append(f"a token's loss was {abs(loss):.1f} nats {where} that without records")
    return (
        f"Measured elsewhere, on {on}; your data may differ. "
        f"At ε {found['epsilon']:g} {found['model']} with {found['settings']} wrote "
        f"{found['texts']:,.0f} texts of {found['tokens']:.0f} tokens on average: "
        f"{', '.join(said)}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
