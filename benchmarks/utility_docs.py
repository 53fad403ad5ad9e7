"""Put the tables of benchmarks.utility into docs/utility.md, each between its two comments.

    python -m benchmarks.utility_docs CACHE [--check]

CACHE is the folder that benchmarks.utility was given as --cache. A block begins with <!-- table NAME --> and
ends with <!-- end -->; NAME is that of a file in CACHE without .md. Headings are left to the document. With
--check nothing is written, and a block that differs is an error.
"""

import argparse
import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "utility.md"
BLOCK = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(folder: Path, name: str) -> str:
    """The table as benchmarks.utility wrote it, its heading made bold."""
    heading, _, rest = (folder / f"{name}.md").read_text("utf-8").partition("\n")
    return f"\n**{heading.lstrip('# ')}**\n{rest}\n"


def filled(text: str, folder: Path) -> str:
    """`text` with every block made anew. Raises FileNotFoundError for a table that the folder lacks."""
    return BLOCK.sub(lambda found: found[1] + table(folder, found[2]) + found[3], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    before = DOCUMENT.read_text("utf-8")
    after = filled(before, arguments.cache)
    if arguments.check:
        return int(before != after)
    DOCUMENT.write_text(after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
