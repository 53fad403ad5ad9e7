"""An audit's report: JSON for programs, Markdown for people."""

import json
from pathlib import Path
from typing import Any


def write(found: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write report.json and report.md to a folder; returns both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, text = folder / "report.json", folder / "report.md"
    data.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    text.write_text(markdown(found), encoding="utf-8")
    return data, text


def markdown(found: dict[str, Any]) -> str:
    """Return the report as a page."""
    body = _BODIES[found["audit"]](found)
    verdict = "passed" if found["passed"] else "FAILED"
    lines = [f"# Audit: {found['audit']}: {verdict}", "", f"Model: {found['model']}.", "", *body]
    lines += ["", "## Settings", ""]
    for arm in found["results"]:
        settings = json.dumps(arm["parameters"], ensure_ascii=False)
        lines += [f"**{arm['arm']}** (`{arm['mechanism']}`, {arm['seconds']} s): `{settings}`", ""]
    return "\n".join(lines)


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def _privacy(arm: dict[str, Any], figure: float | None) -> str:
    if arm["epsilon"] is not None:
        return f"ε {arm['epsilon']:.4g} at δ {arm['delta']:g}"
    return "ex-post" if figure is None else f"ex-post ε {figure:.4g}"


def _reconstruction(found: dict[str, Any]) -> list[str]:
    rows = []
    for arm in found["results"]:
        texts = max(1, arm["texts"])
        share = arm["detects_share"]
        rows.append(
            [
                arm["arm"],
                _privacy(arm, arm["realized_ex_post"]),
                f"{arm['texts']:,}",
                f"{arm['numbers']:,}",
                f"{arm['source']:,} ({arm['source'] / texts:.1%})",
                f"{arm['held_out']:,} ({arm['held_out'] / texts:.1%})",
                f"{arm['source_keys']:,} / {arm['held_out_keys']:,}",
                f"{arm['p']:.3g}",
                "none" if share is None else f"{share:.1%}",
                ("caught" if arm["passed"] else "NOT CAUGHT")
                if arm["control"]
                else ("no difference" if arm["passed"] else "LEAKS"),
            ]
        )
    head = ["arm", "privacy", "texts", "numbers", "planted", "held out"]
    head += ["different keys", "p, two-sided", "detects", "verdict"]
    return [
        f"{found['keys']:,} different five-digit keys, {found['planted']:,} of them planted. "
        "`planted` and "
        "`held out`: texts that are such a key; `different keys`: how many keys of each kind they "
        "are, which "
        f"is what the exact test looks at. An arm fails below p = {found['level']:g}; the control "
        "has to be "
        f"caught below {found['caught_below']:g}. `detects`: the planted share among the emitted "
        "keys (50 % "
        f"without memory) that the test would find with probability {found['power']:g}.",
        "",
        *_table(head, rows),
    ]


def _leave_one_out(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['records']:,} planted records. For each batch the largest |ln P(texts) − ln "
        "P(texts without "
        "a record)| over its records, a lower bound of what was lost, against what was stated.",
        "",
    ]
    for arm in found["results"]:
        rows = arm["batches"]
        passed = sum(row["passed"] for row in rows)
        pure = "" if arm["pure_bound"] is None else f"; no outcome can pass {arm['pure_bound']:.4g}"
        lines += [
            f"## {arm['arm']}: {_privacy(arm, None)}",
            "",
            f"{passed:,} of {len(rows):,} batches lie below the {arm['stated']}{pure}.",
            "",
            *_table(
                ["label", "batch", "records", "lower bound", "stated", ""],
                [
                    [
                        row["label"] or "",
                        str(row["batch"]),
                        str(row["records"]),
                        f"{row['lower_bound']:.4f}",
                        f"{row['stated']:.4f}",
                        "" if row["passed"] else "ABOVE",
                    ]
                    for row in rows
                ],
            ),
            "",
        ]
    return lines


_BODIES = {
    "reconstruction": _reconstruction,
    "leave-one-out": _leave_one_out,
}
