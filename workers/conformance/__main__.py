"""`python -m workers.conformance MODULE`: try a mechanism and record that it passed (`exchequer conform`).

Exit code 0: passed; 1: refused; 2: there is no such module, or no mechanism in it.
"""

import argparse
import json
import sys

from accountant.core.mechanisms import registration
from workers import conformance


def main(arguments: list[str] | None = None) -> int:
    """Try the mechanism of the module named, and leave the record beside it."""
    parser = argparse.ArgumentParser(prog="exchequer conform", description=__doc__.splitlines()[0])
    parser.add_argument("module")
    parser.add_argument("--trials", type=int, default=conformance.TRIALS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        mechanism = conformance.conform(options.module, options.trials, options.seed)
        folder = registration.package_folder(options.module)
    except registration.Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    except (ImportError, AttributeError) as error:
        print(f"MODULE: {error}; allowed: a module that defines MECHANISM", file=sys.stderr)
        return 2
    print(f"{mechanism.id}: {options.trials} trials passed")
    if options.module.partition(".")[0] != "accountant":  # built-in ones are conformed by the test suite
        record = folder / registration.RECORD
        if options.trials < conformance.TRIALS:
            print(f"not recorded: fewer than {conformance.TRIALS} trials")
            return 0
        record.write_text(json.dumps(registration.conformed(mechanism.id, folder), indent=2) + "\n", "utf-8")
        print(f"recorded in {record}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
