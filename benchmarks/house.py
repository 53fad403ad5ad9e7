"""Count how much there is to read, and how it reads: `python -m benchmarks.house [--rooms]`.

`--rooms` also counts the files that a submission and a verification enter, on an embedded
PostgreSQL.
"""

import argparse
import ast
import re
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PRODUCTION = ("accountant", "workers", "web", "migrations", "scripts", "exchequer")
#: First words of a docstring that are no verb in the imperative.
NO_VERB = re.compile(
    r"(an?|the|all|any|what|where|when|whether|who\w*|which|how|if|in|on|of|for|from|with|as|by|"
    r"one|no|none|th[ei]\w+|its?|their|both|two|three|at|to|also|true|false|like|\w+'s|[\W\d].*|"
    r"(?!pass|process|express|address|guess|discuss|focus)\w+s|(?!apply|reply|multiply|rely)\w+ly|)",
    re.IGNORECASE,
)
SAYS_NOTHING = re.compile("each|found|own|made|asked|kept|said|given|told|known|others|those|it")


def tracked(*patterns: str) -> list[Path]:
    """Return the tracked files that match and exist."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *patterns]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def count_lines(paths: list[Path]) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def lacks_verb(docstring: str) -> bool:
    """Say whether a docstring begins with something else than a verb in the imperative."""
    return NO_VERB.fullmatch(docstring.split(maxsplit=1)[0].strip(".,:;()`")) is not None


def is_packed(node: ast.AST) -> bool:
    """Say whether a literal is splatted into a call or into another literal."""
    if isinstance(node, ast.Starred):
        return isinstance(node.value, ast.Tuple | ast.List | ast.Set)
    parts = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return any(key is None and isinstance(value, ast.Dict) for key, value in parts)


def style(paths: list[Path]) -> Iterator[tuple[str, float]]:
    """Yield what the functions of these files look like."""
    densities, docstrings, local_names, small, packed = [], [], [], 0, 0
    for path in paths:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        packed += sum(map(is_packed, nodes))
        used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        used += Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
        for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
            lines = (function.end_lineno or 0) - function.lineno + 1
            densities.append(len({node.id for node in names}) / lines)
            docstrings += filter(None, [ast.get_docstring(function)])
            local_names += {node.id for node in names if isinstance(node.ctx, ast.Store)}
            is_private = function.name.startswith("_") and not function.name.startswith("__")
            small += is_private and lines <= 6 and used[function.name] == 1
    nothing = [SAYS_NOTHING.fullmatch(name) is not None for name in local_names]
    yield "names a line of a function", statistics.mean(densities)
    yield "docstrings without a verb, %", 100 * statistics.mean(map(lacks_verb, docstrings))
    yield "local names that say nothing, %", 100 * statistics.mean(nothing)
    yield "private helpers of 6 lines at most, used once", small
    yield "packed literals", packed


def rooms(walk: Callable[[], object]) -> int:
    """Count the production files whose functions a call enters, in this thread."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return sum(name.startswith(tuple(str(ROOT / top) for top in PRODUCTION)) for name in entered)


def submission_rooms() -> int:
    """Count the files that the second job of a shape enters, from the request to its answer."""
    from accountant.identities import credentials
    from accountant.settings import Settings
    from benchmarks.admission import new_ground, server
    from web.app import create_app

    with server(None) as (servers, home):
        ground = new_ground(servers, home, 1, log=True)
        client = create_app(Settings(home=home / "web", DATABASE_URL=ground.url)).test_client()
        token = credentials.add_token(ground.engine, ground.analyst.id, "rooms", None)
        request = ground.request(ground.datasets[0], 1)
        fields = ("dataset", "mechanism", "model", "purpose", "parameters")
        body = {name: getattr(request, name) for name in fields}

        def submit() -> None:
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid.uuid4())}
            answer = client.post("/api/v1/jobs", json=body, headers=headers)
            assert answer.status_code == 201, answer.text

        submit()
        return rooms(submit)


def verification_rooms() -> int:
    """Count the files that the verification of an export of 24 entries enters."""
    from benchmarks.verify import write
    from web.cli.verify import verified

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        write(path, 24)
        return rooms(lambda: verified(str(path)))


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rooms", action="store_true", help="also walk through two journeys")
    python, sql = tracked(*(f"{top}*.py" for top in PRODUCTION)), tracked("migrations/*.sql")
    documents = tracked("docs/*.md", ":(glob)*.md")
    figures = {
        "production lines (Python and SQL)": count_lines(python + sql),
        "production files": len(python + sql),
        "lines of SQL files": count_lines(sql),
        "lines of tests": count_lines(tracked("tests/*.py")),
        "lines of benchmarks": count_lines(tracked("benchmarks/*.py")),
        "words of documents": sum(len(path.read_text().split()) for path in documents),
        **dict(style(python)),
    }
    if arguments.parse_args().rooms:
        figures["files that a submission enters"] = submission_rooms()
        figures["files that a verification enters"] = verification_rooms()
    for name, figure in figures.items():
        print(f"{name:50}{figure:10,.2f}" if isinstance(figure, float) else f"{name:50}{figure:7,}")


if __name__ == "__main__":
    main()
