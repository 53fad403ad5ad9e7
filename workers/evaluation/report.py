"""The report of an evaluation: JSON for programs, and one self-contained HTML file with plots."""

import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from workers.evaluation.figures import Figure, Value

SIDES = ("zero-shot", "real texts")
INTRODUCTION = (
    "Zero-shot texts are what the language model writes without any record. Below each value "
    "stands its 95 % interval. Figures of the same name with other settings are not comparable. "
    "Nothing private was read."
)
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; }
th, td { border-bottom: 1px solid #8884; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
small { color: #777; } svg { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
"""


def to_json(facts: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """Return the report as JSON. `facts`: what was compared."""
    document = {"format": "exchequer-evaluation", "version": 1, **facts}
    document["figures"] = [figure.to_json() for figure in figures]
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def to_html(title: str, facts: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """Return the report as a page: every figure with its settings, then the plots."""
    rows = "\n".join(_row(figure) for figure in figures)
    plots = "\n".join(
        f"<figure>{plot(figure)}<figcaption>{html.escape(figure.name)}</figcaption></figure>"
        for figure in figures
        if figure.series
    )
    listed = "".join(
        f"<dt>{html.escape(str(name))}</dt><dd>{html.escape(str(value))}</dd>"
        for name, value in facts.items()
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{html.escape(title)}</h1>\n<dl>{listed}</dl>\n"
        f"<p>{INTRODUCTION}</p>\n"
        "<table><thead><tr><th>metric</th><th>these texts</th><th>zero-shot</th>"
        "<th>real texts</th><th>best is</th><th>settings</th></tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table>\n{plots}\n</body></html>\n"
    )


def _row(figure: Figure) -> str:
    settings = "; ".join(f"{name} {value}" for name, value in figure.settings.items())
    details = "; ".join(f"{name} {value:.4g}" for name, value in figure.details.items())
    values = (Value(figure.value, figure.interval), *map(figure.beside.get, SIDES))
    cells = "".join(f'<td class="number">{_shown(value)}</td>' for value in values)
    said = f"<br><small>{html.escape(figure.sentence)}</small>" if figure.sentence else ""
    return (
        f"<tr><th>{html.escape(figure.name)}{said}</th>{cells}<td>{html.escape(figure.ideal)}</td>"
        f"<td>{html.escape(settings)}<br><small>{html.escape(details)}</small></td></tr>"
    )


def _shown(value: Value | None) -> str:
    if value is None or math.isnan(value.value):
        return "none"
    low_high = "" if value.interval is None else " to ".join(f"{end:.3g}" for end in value.interval)
    return f"{value.value:.3g}" + (f"<br><small>{low_high}</small>" if low_high else "")


def plot(figure: Figure) -> str:
    """Return the figure's series as SVG, the same bytes for the same figure."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context({"svg.hashsalt": "exchequer", "svg.fonttype": "none", "font.size": 9}):
        canvas = Canvas(figsize=(5.2, 3.2), layout="constrained")
        axes = canvas.subplots()
        for (name, (x, y)), style in zip(figure.series.items(), ("-", "--", ":"), strict=False):
            axes.plot(x, y, style, label=name)
        axes.set_title(figure.name)
        axes.grid(alpha=0.3)
        if len(figure.series) > 1:
            axes.legend()
        out = io.StringIO()
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
