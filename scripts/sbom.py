"""`make sbom`: what the service consists of, from the locks, as CycloneDX 1.6 (JSON) in
build/sbom.json.

Each locked package with its version, the SHA-256 of every file that may be installed for it, and
which lock names it. The same locks give the same file, byte for byte: it holds no time and no
random number.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def locked() -> list[tuple[str, str, list[str], str]]:
    """(package, version, SHA-256 of its files, name of its lock) of all locks, by package."""
    packages = []
    for lock in sorted(ROOT.glob("requirements*.lock")):
        for entry in re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]:
            pin = PIN.match(entry)
            if pin is None:
                raise SystemExit(f"{lock.name}: not a pin: {entry[:60]!r}")
            packages.append((pin[1], pin[2], HASH.findall(entry), lock.name))
    return sorted(packages)


def document() -> dict[str, Any]:
    """Return the bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    components = [_component(*package) for package in locked()]
    stated = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, stated)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": project["name"],
                "name": project["name"],
                "version": project["version"],
            }
        },
        "components": components,
        "dependencies": [
            {
                "ref": project["name"],
                "dependsOn": [component["bom-ref"] for component in components],
            }
        ],
    }


def _component(name: str, version: str, hashes: list[str], lock: str) -> dict[str, Any]:
    address = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": version,
        "scope": "excluded" if lock == "requirements-dev.lock" else "required",
        "purl": address,
        # One file a hash: a component's own `hashes` would be of one file, and a package has
        # several.
        "components": [
            {
                "type": "file",
                "bom-ref": f"{address}#{hash_}",
                "name": f"{name}-{version}",
                "hashes": [{"alg": "SHA-256", "content": hash_}],
            }
            for hash_ in hashes
        ],
        "properties": [{"name": "exchequer:lock", "value": lock}],
    }


def main(path: Path = ROOT / "build" / "sbom.json") -> None:
    """Write it."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document(), indent=1) + "\n")
    sys.stdout.write(f"{path}: {len(locked())} packages\n")


if __name__ == "__main__":
    main()
