"""Docs pages made from mechanisms: `python -m accountant.core.mechanisms.pages FOLDER`, or `make
docs`.

A page is docs/mechanisms/<id>.md. What stands above the line MADE is made from the metadata; what a
person writes below it is kept.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from accountant.core import mechanisms
from accountant.core.mechanisms.base import Mechanism, quote
from accountant.core.privacy.price import Terms
from accountant.core.privacy.units import up

MADE = "<!-- made by `make docs`; what stands below this line is written by hand -->"

#: The dataset of the examples: two labels and a declared size, add-remove, δ 1e-6.
EXAMPLE_TERMS = Terms(public_size=10_000, labels=("first", "second"))


def page(mechanism: Mechanism[Any], prose: str = "") -> str:
    """Return the page of a mechanism in Markdown, with `prose` at its end."""
    runs = (
        ""
        if mechanism.runner
        else "**It has a price and no runner yet: it can be quoted, not run.**\n\n"
    )
    model = "a model" if mechanism.uses_model else "no model"
    lines = [
        f"# {mechanism.title} (`{mechanism.id}`)\n\n{mechanism.summary} A request names {model}; "
        f"`--fit` fits `{mechanism.size_field}`.\n\n{runs}Source: {mechanism.source}.\n",
        *_parameters(mechanism),
        *_example(mechanism),
    ]
    if mechanism.artifacts:
        lines.append("## Released besides texts\n")
        lines += [f"- `{name}`: {what}" for name, what in mechanism.artifacts.items()]
        lines.append("")
    return "\n".join([*lines, MADE, prose.strip("\n")]).rstrip() + "\n"


def _parameters(mechanism: Mechanism[Any]) -> Iterator[str]:
    yield "## Parameters\n\n| name | default; allowed | what it is |\n|---|---|---|"
    required = mechanism.schema.get("required", ())
    for name, part in mechanism.schema["properties"].items():
        default = "required" if name in required else _default(part.get("default"))
        values = "; ".join(filter(None, (default, _allowed(part))))
        yield f"| `{name}` | {values} | {_cell(part['description'])} |"
    yield ""


def _default(value: Any) -> str:
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else str(value).replace("\n", "⏎")
    return f"`{_cell(text if len(text) <= 60 else text[:57] + '…')}`"


def _allowed(schema: Mapping[str, Any]) -> str:
    """Return the choices or the range of a field, or nothing if its default shows it."""
    part = next(option for option in schema.get("anyOf", [schema]) if option.get("type") != "null")
    if "enum" in part:
        return ", ".join(map(str, part["enum"]))
    low, high = part.get("minimum", part.get("exclusiveMinimum")), part.get("maximum")
    above = "" if "minimum" in part else "above "
    return "" if high is None else f"{above}{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _example(mechanism: Mechanism[Any]) -> Iterator[str]:
    quoted = quote(mechanism, mechanism.parse(mechanism.example, EXAMPLE_TERMS), EXAMPLE_TERMS)
    settings = "".join(
        f" --set {name}='{'null' if v is None else v}'" for name, v in mechanism.example.items()
    )
    terms = " \\\n        --public-size 10000 --labels first,second\n"
    yield f"## What it costs\n\n    exchequer price {mechanism.id}{settings}{terms}"
    if quoted["dp"] is not None:
        dp = quoted["dp"]
        yield (
            f"ε {up(dp['epsilon'], 4):.4g} at δ {dp['delta']:g}:\n"
            if dp["epsilon"]
            else "Nothing:\n"
        )
    yield "\n".join(f"- {line}" for line in quoted["breakdown"]) + "\n"


def write(folder: Path) -> list[Path]:
    """Write the page of every mechanism, keeping what people wrote; the pages that changed."""
    changed = []
    for mechanism in mechanisms.MECHANISMS.values():
        path = folder / f"{mechanism.id}.md"
        before = path.read_text("utf-8") if path.exists() else ""
        after = page(mechanism, before.partition(MADE)[2])
        if after != before:
            path.write_text(after, "utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    for each in write(Path(sys.argv[1])):
        print(each)
