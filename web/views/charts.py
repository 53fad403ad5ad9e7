"""Charts of what an allowance went on, as the server draws them: numbers in, points of an SVG out.

The macros are in templates/_charts.html. Each chart has a table with the same figures beside it.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from flask import Flask

from accountant.core.names import FILTER_NAMES
from web.meaning import at_most, guesser
from web.views.template_filters import goal

MEASURE_NAMES = {
    **FILTER_NAMES,
    "basic_delta": "Basic, δ",
    "ex_post": "Ex-post caps",
    "secret": "Secrets",
}
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 632, 10, 208
MOST_POINTS = 400
TABLE_ROWS = 12


def burn_down_plot(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return lines of what is left of each measure, as a share of what it allows today; None before
    an allowance.

    A filter that is passed has nothing left. Steps, not slopes: between two points nothing was
    charged. At most MOST_POINTS of them, each the last of an equal slice of time, so the ends are
    exact.
    """
    limits = {measure["name"]: Decimal(measure["limit"]) for measure in figures["measures"]}
    names = [name for name, limit in limits.items() if limit > 0]
    units = {measure["name"]: measure["unit"] for measure in figures["measures"]}
    points = [point for point in figures["burn_down"] if any(name in point for name in names)]
    if not names or not points:
        return None
    moments = [_moment(point["at"]).timestamp() for point in points]
    start, span = moments[0], (moments[-1] - moments[0]) or 1.0
    slices = {
        min(int(MOST_POINTS * (at - start) / span), MOST_POINTS): n for n, at in enumerate(moments)
    }
    days = sorted({0, *slices.values()})
    left = {name: [max(Decimal(points[n][name]), Decimal(0)) for n in days] for name in names}
    shares = {name: [float(point / limits[name]) for point in line] for name, line in left.items()}
    top = max(1.0, *(max(line) for line in shares.values()))

    def across(number: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (moments[number] - start) / span

    def up(share: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * share / top

    rows = min(len(days), TABLE_ROWS)  # at equal distances, the ends among them
    closed = {measure["name"] for measure in figures["measures"] if measure["closed"]}
    return {
        "lines": [
            {
                "name": name,
                "label": MEASURE_NAMES[name],
                "points": _steps([across(n) for n in days], [up(share) for share in line]),
                "left": line[-1],
                "closed": name in closed,
                "passed": Decimal(points[-1][name]) < 0,
                "number": list(MEASURE_NAMES).index(name) + 1,
            }
            for name, line in shares.items()
        ],
        "grid": [
            {"y": round(up(share), 1), "share": share}
            for share in [0.0, 0.25, 0.5, 0.75, 1.0, *([top] if top > 1.1 else [])]
        ],
        "ends": _ends(points[0]["at"], points[-1]["at"]),
        "rows": [points[days[round(n * (len(days) - 1) / max(rows - 1, 1))]] for n in range(rows)],
        "names": names,
        "heads": ["after", *((f"#{MEASURE_NAMES[name]}", f"{units[name]} left") for name in names)],
    }


def _steps(across: Sequence[float], up: Sequence[float]) -> str:
    placed = [(across[0], up[0])]
    for x, y in zip(across[1:], up[1:], strict=True):
        placed += [(x, placed[-1][1]), (x, y)]
    placed.append((_RIGHT, placed[-1][1]))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)


def spent_by(
    figures: Mapping[str, Any], key: str, measure: str | None = None
) -> list[dict[str, Any]]:
    """Return sums by `key` (analyst, mechanism, its goal in words, or month), with the share that
    each is of `measure`'s total.

    Months in their order, newest first; all else by what it spent. A name of None: everybody else.
    """
    measures = [figure["name"] for figure in figures["measures"]]
    chosen = measure if measure in measures else next(iter(measures), None)
    sums: dict[str | None, dict[str, Any]] = {}
    for total in figures["spending"]:
        of = goal(total["mechanism"]) if key == "goal" else total[key]
        row = sums.setdefault(of, {"name": of, "jobs": 0, **dict.fromkeys(measures, Decimal(0))})
        row["jobs"] += total["jobs"]
        for name in measures:
            row[name] += Decimal(total[name])
    whole = sum((row[chosen] for row in sums.values()), Decimal(0)) if chosen else Decimal(0)
    for row in sums.values():
        row["share"] = float(row[chosen] / whole) if chosen and whole > 0 else 0.0
    if key == "month":
        return list(sums.values())
    return sorted(sums.values(), key=lambda row: (-row["share"], row["name"] or "~"))


def _moment(text: str) -> datetime:
    """Return a time, or the beginning of a day in UTC."""
    then = datetime.fromisoformat(text)
    return then.replace(tzinfo=UTC) if then.tzinfo is None else then.astimezone(UTC)


def _ends(first: str, last: str) -> tuple[str, str]:
    """Return the ends of the axis: days in UTC, or times within one day."""
    moments = [_moment(moment) for moment in (first, last)]
    if moments[0].date() == moments[1].date():
        if len(first) == len("2026-01-31"):
            return "", moments[1].strftime("%d %b %Y")
        return moments[0].strftime("%d %b %Y, %H:%M"), moments[1].strftime("%H:%M")
    return moments[0].strftime("%d %b %Y"), moments[1].strftime("%d %b %Y")


def share(text: str) -> float:
    """Return a share that entries hold as a fraction."""
    return float(Fraction(text))


def init_app(app: Flask) -> None:
    """Give the templates these functions."""
    for function in (burn_down_plot, share, at_most, guesser):
        app.jinja_env.filters[function.__name__] = function
    app.jinja_env.globals.update(spent_by=spent_by, MEASURE_NAMES=MEASURE_NAMES)
