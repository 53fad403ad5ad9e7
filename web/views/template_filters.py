"""Display of values on pages: times, figures, states, units. No number without its unit."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from flask import Flask
from flask_login import current_user
from markupsafe import Markup

from accountant.core import mechanisms
from accountant.core.ledger.admission import UNIT_NAMES
from accountant.core.mechanisms.base import GOALS
from accountant.core.names import FILTER_NAMES
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.core.privacy.units import down as rounded_down
from accountant.core.privacy.units import up as rounded_up
from accountant.identities import passkeys, people
from accountant.queries import decisions
from accountant.queries.measured import measured
from accountant.queries.standing import percent as plain_percent
from accountant.transactions import answers
from web.context import engine
from web.meaning import judgement
from web.views import presets
from web.views.docs import about_field

#: The states whose badges have a tone.
TONES = {
    "wait": ("awaiting_approval", "awaiting_release"),
    "bad": ("refused", "failed", "invalid"),
    "live": ("queued", "running", "settling", "checking"),
    "good": ("succeeded", "ready"),
}

#: Metrics of texts as a person would ask for them.
FIGURE_NAMES = {
    "Loss": "how strange they are to the model (loss), nats a token",
    "Usable texts": "readable, finished, no duplicate, no talk about the task",
    "Right labels": "right labels, by a classifier trained on real texts",
    "Longest copied run": "longest run of words shared with a real text",
    "MAUVE": "likeness (MAUVE)",
    "Fréchet distance": "distance in meaning (Fréchet)",
    "Length distance": "difference in length, words",
    "Distinct openings, ratio": "variety of first words",
    "TSTR accuracy": "right labels, by a classifier trained on them",
}

#: From here on a used share is told as "over".
MOST_PER_CENT = 1000


def figure(value: object, digits: int = 4) -> str:
    """Return a number with `digits` significant digits, plain from 1e-4 to 1e6."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return str(value)
    if number == 0:
        return "0"
    if not number.is_finite() or not -4 <= number.adjusted() < 6:
        return re.sub(r"e([+-])0*", r"e\1", f"{float(number):.{digits}g}").replace("e+", "e")
    text = f"{number:.{max(digits - 1 - number.adjusted(), 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else f"{int(text):,}"


def spent(value: object, digits: int = 4) -> str:
    """Return a price, or what is spent, as a figure that is not below it."""
    return _towards(rounded_up, value, digits)


def left(value: object, digits: int = 4) -> str:
    """Return a remaining amount as a figure that is not above it."""
    return _towards(rounded_down, value, digits)


@lru_cache(maxsize=4096, typed=True)
def _towards(rounded: Callable[[Any, int], float], value: object, digits: int) -> str:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return str(value)
    if number.is_finite() and number.adjusted() < 6:
        digits = max(digits, number.adjusted() + 1)  # whole units are shown to the last
    return figure(rounded(value if isinstance(value, float) else str(value), digits), digits)


def percent(share: object) -> str:
    """Return a used share as per cent, rounded up, with a decimal below 10 and near 100."""
    value = 100 * Decimal(str(share))
    if 0 < value < Decimal("0.1"):
        return "< 0.1 %"
    # of next to nothing: what is left says more than a figure of twelve digits
    if value >= MOST_PER_CENT:
        return f"over {MOST_PER_CENT:,} %"
    return _per_cent(value, ROUND_CEILING)


def percent_left(share: object) -> str:
    """Return the same of what is left, rounded down."""
    return _per_cent(100 * Decimal(str(share)), ROUND_FLOOR)


def _per_cent(value: Decimal, rounding: str) -> str:
    # The last digits of a float are noise: 0.07 is 7 %, whatever its hundredfold is.
    value = value.quantize(Decimal("1e-9"), rounding=ROUND_HALF_EVEN) if value < 10**6 else value
    fine = value < 10 or 98 < value < 102
    value = value.quantize(Decimal("0.1") if fine else Decimal(1), rounding=rounding)
    return f"{value:,} %"


def goal(mechanism: str) -> str:
    """Return what somebody gets from a mechanism, as a form calls it; an old one by its name."""
    known = mechanisms.find(mechanism)
    return mechanism if known is None else GOALS.get(known.goal, known.title)


def judged(epsilon: object) -> dict[str, Any]:
    """Return the judgement of an allowed ε."""
    return judgement(float(str(epsilon)))


def units(amount: str | int) -> str:
    """Return an amount of a ledger entry, in 10^-9, as a decimal."""
    return to_decimal(int(amount), EPSILON_UNITS)


def unit(kind: str) -> str:
    """Return the unit of a filter."""
    return UNIT_NAMES[Kind(kind)]


def moment(value: str | None) -> Markup | str:
    """Return a time in UTC, or a day."""
    if not value:
        return "—"
    then = datetime.fromisoformat(value)
    if len(value) == len("2026-01-31"):
        exact, shown = f"{then:%Y-%m-%d}", f"{then:%d %b %Y}"
    else:
        then = then.astimezone(UTC)
        exact, shown = then.isoformat(timespec="seconds"), f"{then:%d %b %Y, %H:%M:%S UTC}"
    return Markup(f'<time datetime="{exact}">{shown}</time>')  # noqa: S704 (two times)


def lasting(seconds: float) -> str:
    """Return a length of time in its two largest units, rounded."""
    whole = round(seconds)
    if whole < 1:
        return "under 1 s"
    for unit_name, size, smaller, part in (("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit_name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def sentence(text: str) -> str:
    """Return a clause as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def words(name: str) -> str:
    """Return a field's name as words."""
    return name.replace("ex_post", "ex-post").replace("_", " ")


def state_look(state: str) -> dict[str, str]:
    """Return label and tone of a state's badge."""
    tone = next((tone for tone, states in TONES.items() if state in states), "quiet")
    return {"label": state.replace("_", " "), "tone": tone}


def refusal_unit(cap: str) -> str:
    """Return the unit of a refusal's figures."""
    if cap in set(Kind):
        return unit(cap)
    return {"model context": "tokens", "allowance": "ε", "basic δ": "δ"}.get(cap, "")


def bar(value: object) -> str:
    """Return a share as the length of a bar, in per cent; what is more than all is drawn as all."""
    return f"{min(max(float(str(value)), 0.0), 1.0) * 100:.3f}%"


def extent(series: Mapping[str, Mapping[str, list[float]]]) -> dict[str, float]:
    """Return the ends of a plot's axes, wide enough for every line."""
    across = [value for line in series.values() for value in line["x"]]
    up = [value for line in series.values() for value in line["y"]]
    return {"left": min(across), "right": max(across), "low": min(up), "high": max(up)}


def points(line: Mapping[str, list[float]], box: Mapping[str, float]) -> str:
    """Return a line as points of an SVG polyline, in 276 by 164 from (36, 8)."""
    width, height = box["right"] - box["left"] or 1.0, box["high"] - box["low"] or 1.0
    placed = (
        (36 + 276 * (x - box["left"]) / width, 172 - 164 * (y - box["low"]) / height)
        for x, y in zip(line["x"], line["y"], strict=True)
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)


def cost_plots(curve: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the plots of how an ex-post cost grew."""
    return CostCurve.from_json(curve).plots()


def waiting() -> tuple[int, int]:
    """Return how many decisions wait for a steward, and questions for this person."""
    if not current_user.is_authenticated or not current_user.actor.roles & {"analyst", "steward"}:
        return 0, 0
    return decisions.count_waiting(engine(), current_user.actor)


def choices(role: str | None = None) -> list[str]:
    """Return the names of open accounts, of one role or of who may ask, for a form."""
    return people.choices(engine(), current_user.actor, role)


def signers() -> list[tuple[str, str]]:
    """Return stewards' passkeys for the form of a policy: what it says of each, and a label."""
    return [
        (each["signer"], f"{each['person']}: {each['name']} ({each['key_sha256'][:16]})")
        for each in passkeys.signers(engine(), current_user.actor)
    ]


_OF_FIGURES = (figure, spent, left, percent, percent_left, judged, units, unit, refusal_unit)
_OF_TEXTS = (goal, moment, lasting, sentence, words)
_OF_DRAWINGS = (bar, extent, points, cost_plots)


def init_app(app: Flask) -> None:
    """Give the templates these functions."""
    app.jinja_env.filters["share_left"] = plain_percent
    app.jinja_env.filters["measured"] = measured
    for function in (*_OF_FIGURES, *_OF_TEXTS, *_OF_DRAWINGS):
        app.jinja_env.filters[function.__name__] = function
    app.jinja_env.globals.update(
        state_look=state_look,
        waiting=waiting,
        choices=choices,
        signers=signers,
        about_field=about_field,
        FILTER_NAMES=FILTER_NAMES,
        FILTER_HEADS=[(f"#{name}", unit(kind)) for kind, name in FILTER_NAMES.items()],
        kinds=answers.KINDS,
        presets=presets,
        pairs=lambda names: [(name, name) for name in names],
        FIGURE_NAMES=FIGURE_NAMES,
    )
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.context_processor(_who)


def _who() -> dict[str, Any]:
    actor = current_user.actor if current_user.is_authenticated else None
    return {"actor": actor, "roles": frozenset() if actor is None else actor.roles}
