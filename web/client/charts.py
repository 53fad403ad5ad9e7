"""A budget as a picture: SVG made here, so that a notebook needs no plotting library.

Ink is `currentColor`, which follows a light or dark page. Spent, reserved and left differ by
pattern and are written beside each bar, so nobody depends on colour.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from accountant.core.privacy.units import down, up
from accountant.schema.datasets import Filter
from web.client.facts import Budget

FILTERS = {
    "renyi": "Rényi at α*",
    "gaussian": "Gaussian",
    "renyi2": "Rényi, low order",
    "basic": "basic",
}

_WIDTH, _LEFT, _BAR, _ROW, _TOP = 640, 110, 500, 46, 58
_SPENT, _RESERVED = "#3b6ea8", "#d08a2e"
_HATCH = "exchequer-reserved"  # the same in every chart, so charts on one page may share it


@dataclass(frozen=True)
class Chart:
    """A picture that a notebook shows; `svg` is its text."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f"<div>{self.svg}</div>"

    def __repr__(self) -> str:
        return f"<Chart: {len(self.svg)} characters of SVG; save(path) writes it>"

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file."""
        target = Path(path)
        target.write_text(self.svg, encoding="utf-8")
        return target


def budget_chart(budget: Budget) -> Chart:
    """Return a bar for each filter: what is spent, reserved and left of its limit.

    A job is admitted while one filter holds, so what counts is the bar with most room.
    """
    rows = list(budget.filters)
    height = _TOP + _ROW * max(1, len(rows)) + 34
    sentence = _sentence(budget)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="13" '
        f'fill="currentColor">',
        f"<title>{escape(f'Budget of {budget.dataset}')}</title><desc>{escape(sentence)}</desc>",
        f'<defs><pattern id="{_HATCH}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="{_RESERVED}" '
        'fill-opacity="0.35"/>'
        f'<rect width="2" height="6" fill="{_RESERVED}"/></pattern></defs>',
        f'<text x="0" y="18" font-size="15" font-weight="600">{escape(_title(budget))}</text>',
        f'<text x="0" y="38" fill-opacity="0.75">{escape(sentence)}</text>',
    ]
    parts += [_bar(filter_, _TOP + _ROW * at) for at, filter_ in enumerate(rows)]
    parts.append(_legend(height - 14))
    return Chart("".join(parts) + "</svg>")


def _title(budget: Budget) -> str:
    if budget.account is None:
        return f"{budget.dataset}: no allowance yet"
    return f"{budget.dataset}: ε {budget.account.epsilon} at δ {float(budget.account.delta):.12g}"


def _sentence(budget: Budget) -> str:
    if budget.account is None:
        return "a steward sets one: exchequer dataset allow"
    if not any(filter_.holds and not filter_.closed for filter_ in budget.filters):
        return "No filter holds: no further job is admitted."
    return budget.sentence


def _bar(each: Filter, top: int) -> str:
    spent = _width(each.spent_share)
    reserved = min(_width(each.reserved_share), _BAR - spent)
    note = (
        f"closed by {each.closed} job{'s' if each.closed > 1 else ''} that it doesn't count"
        if each.closed
        else f"spent {up(each.spent, 4):.4g}, reserved {up(each.reserved, 4):.4g}, "
        f"left {down(each.left, 4):.4g} of {down(each.limit, 4):.4g}"
    )
    ink = 'fill-opacity="0.45"' if each.closed or not each.holds else ""
    return (
        f'<g {ink}><text x="0" y="{top + 13}">{escape(FILTERS.get(each.kind, each.kind))}</text>'
        f'<rect x="{_LEFT}" y="{top}" width="{_BAR}" height="16" rx="2" fill="none" '
        'stroke="currentColor" '
        f'stroke-opacity="0.5"/>'
        f'<rect x="{_LEFT}" y="{top}" width="{spent}" height="16" rx="2" fill="{_SPENT}"/>'
        f'<rect x="{_LEFT + spent}" y="{top}" width="{reserved}" height="16" '
        f'fill="url(#{_HATCH})"/>'
        f'<text x="{_LEFT}" y="{top + 31}" font-size="11" '
        f'fill-opacity="0.75">{escape(note)}</text></g>'
    )


def _legend(y: int) -> str:
    parts, x = [], _LEFT
    for label, fill in (("spent", _SPENT), ("reserved", f"url(#{_HATCH})"), ("left", "none")):
        parts.append(
            f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{fill}" '
            'stroke="currentColor" '
            f'stroke-opacity="0.5"/><text x="{x + 18}" y="{y}" font-size="11">{label}</text>'
        )
        x += 90
    return "".join(parts)


def _width(share: float) -> int:
    """Return a bar's width in pixels: at least 1 for any use at all."""
    if share <= 0:
        return 0
    return max(1, round(_BAR * min(1.0, share)))
