"""The report of an evaluation: JSON for programs, and one self-contained HTML file with plots."""

import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from workers.evaluation.figures import Figure

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
        "<p>Figures of the same name with other settings are not comparable. Nothing private was "
        "read.</p>\n"
        "<table><thead><tr><th>metric</th><th>value</th><th>best "
        "is</th><th>settings</th></tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table>\n{plots}\n</body></html>\n"
    )


def _row(figure: Figure) -> str:
    settings = "; ".join(f"{name} {value}" for name, value in figure.settings.items())
    details = "; ".join(f"{name} {value:.4g}" for name, value in figure.details.items())
    value = "none" if math.isnan(figure.value) else f"{figure.value:.4g}"
    return (
        f'<tr><th>{html.escape(figure.name)}</th><td class="number">{value}</td>'
        f"<td>{html.escape(figure.ideal)}</td>"
        f"<td>{html.escape(settings)}<br><small>{html.escape(details)}</small></td></tr>"
    )


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
