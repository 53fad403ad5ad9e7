"""`make audit`: no locked version has an advisory of the kept list, scripts/advisories.json. Works
offline.

    python scripts/advisories.py           # compares; exits with 1 where a locked version is
                                           affected
    python scripts/advisories.py renew     # asks osv.dev about every locked package, and keeps what
                                           it says

A range is [first version, version that mends it or null]: the first is affected, the second is not.
The list says when, and from where, it was made; an advisory that is younger is not known to it.
"""

import argparse
import datetime
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from packaging.version import Version
from sbom import locked

KEPT = Path(__file__).with_name("advisories.json")
ADDRESS = "https://api.osv.dev/v1/query"

Advisory = dict[str, Any]


def affected(advisories: list[Advisory], versions: dict[str, str]) -> list[str]:
    """Return a line for each advisory that holds of one of these versions, by package."""
    return [
        "{package} {version}: {id}, {summary}".format(
            version=versions[advisory["package"]], **advisory
        )
        for advisory in advisories
        if advisory["package"] in versions
        and _within(Version(versions[advisory["package"]]), advisory["ranges"])
    ]


def _within(version: Version, ranges: list[list[str | None]]) -> bool:
    return any(
        (first in (None, "0") or Version(str(first)) <= version)
        and (mended is None or version < Version(mended))
        for first, mended in ranges
    )


def asked(package: str, address: str) -> list[Advisory]:
    """Return the advisories on a package that OSV knows, all pages of them."""
    advisories, page = [], ""
    while True:
        question: dict[str, Any] = {"package": {"name": package, "ecosystem": "PyPI"}}
        question |= {"page_token": page} if page else {}
        request = urllib.request.Request(address, json.dumps(question).encode())  # noqa: S310 (ours, or a test's)
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            reply = json.load(answer)
        for vuln in reply.get("vulns", []):
            if not vuln.get("withdrawn"):
                advisories.append(_read(vuln, package))
        page = reply.get("next_page_token", "")
        if not page:
            return advisories


def _read(told: dict[str, Any], package: str) -> Advisory:
    ranges: list[list[str | None]] = []
    for vulnerable in told.get("affected", []):
        if vulnerable.get("package", {}).get("name", "").lower() != package:
            continue
        stated = [part for part in vulnerable.get("ranges", []) if part.get("type") == "ECOSYSTEM"]
        for part in stated:
            ranges += _ranges(part["events"])
        if not stated:  # versions alone: each is a range of its own
            ranges += [
                [version, f"{version}.post0.dev0"] for version in vulnerable.get("versions", [])
            ]
    return {
        "id": told["id"],
        "package": package,
        "summary": str(told.get("summary") or told.get("details", ""))[:200],
        "ranges": ranges,
    }


def _ranges(events: list[dict[str, str]]) -> list[list[str | None]]:
    ranges: list[list[str | None]] = []
    for event in events:
        if "introduced" in event:
            ranges.append([event["introduced"], None])
        elif "fixed" in event and ranges:
            ranges[-1][1] = event["fixed"]
        elif "last_affected" in event and ranges:
            ranges[-1][1] = f"{event['last_affected']}.post0.dev0"  # the next that could be
    return ranges


def main(arguments: list[str] | None = None) -> int:
    """Compare, or renew and then compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", nargs="?", choices=("check", "renew"), default="check")
    parser.add_argument("--address", default=ADDRESS, help="where advisories are asked for")
    parser.add_argument("--list", type=Path, default=KEPT, help="the kept list")
    options = parser.parse_args(arguments)
    versions = {name: version for name, version, _, _ in locked()}
    if options.act == "renew":
        advisories = [
            advisory for name in sorted(versions) for advisory in asked(name, options.address)
        ]
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        document = {
            "kept": today,
            "source": f"every advisory of {options.address} on the locked packages",
        }
        options.list.write_text(json.dumps({**document, "advisories": advisories}, indent=1) + "\n")
    document = json.loads(options.list.read_text())
    problems = affected(document["advisories"], versions)
    count = len(document["advisories"])
    sys.stdout.write(f"{count} advisories of {document['kept']} ({document['source']})\n")
    sys.stdout.write(
        "\n".join([*problems, f"{len(problems)} of {len(versions)} versions affected"]) + "\n"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
