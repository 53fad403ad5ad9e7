#!/bin/sh
# Run a script with the newest Python that Exchequer supports, or with the one that PYTHON names.
#
#     sh scripts/python.sh scripts/install.py service

supported='import sys; sys.exit(sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 15))'
without_venv=
for python in "${PYTHON:-python3.14}" ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    # A name that a version manager lists and can't run fails here, and the next is tried.
    "$python" -c "$supported" >/dev/null 2>&1 || continue
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && exec "$python" "$@"
    without_venv=${without_venv:-$python}
done

if test -n "$without_venv"; then
    version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "$without_venv lacks its venv module, which Debian and Ubuntu bring by \`sudo apt install python$version-venv\`" \
        "and Fedora by \`sudo dnf install python3-libs\`: install it and run the same command again." >&2
else
    found=$("${PYTHON:-python3}" --version 2>/dev/null || echo "no ${PYTHON:-python3} that runs")
    echo "Exchequer needs Python 3.11, 3.12, 3.13 or 3.14 and this machine has $found: install one" \
        "(Debian 12, Ubuntu 24.04: \`sudo apt install python3 python3-venv\`; Ubuntu 22.04:" \
        "\`sudo apt install python3.11 python3.11-venv\`; Fedora: \`sudo dnf install python3.13\`)" \
        "and run the same command again, with PYTHON=/path/to/python if it is in no folder of PATH." >&2
fi
exit 1
