"""Objects as notebooks show them: small tables in which every text is escaped."""

from collections.abc import Iterable
from html import escape


def facts_html(title: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values under a title; values that are None are left out."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in pairs
        if value is not None
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"


def lines_html(lines: Iterable[str]) -> str:
    """Return sentences, one a line."""
    return "".join(f"<div>{escape(each)}</div>" for each in lines)
