"""docs/extending.md as it stands: the package that it prints, from its files to a metered run."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text("utf-8")
FILES = ("pyproject.toml", "length_histogram/price.py", "length_histogram/algorithm.py")
RUN = """
from accountant.core import mechanisms
from accountant.core.privacy.events import releases
from accountant.core.privacy.price import Terms
from workers.data.records import Record, Records
from workers.interface import Progress
from workers.mechanisms import runner
from workers.noise.meter import Meter

mechanism, terms = mechanisms.get_runnable("length-histogram"), Terms()
parameters = mechanism.parse({"epsilon": 100.0, "bins": 3, "width": 2}, terms)
price = mechanism.price(parameters, terms)
data = Records((None,), tuple(Record(str(n), None, "word " * n) for n in range(10)), b"k" * 32)
meter, progress = Meter(price.dp), Progress(1)
(made,) = runner("length-histogram").run(parameters, terms, data, None, meter, progress, None)
assert releases(meter.realized) == releases(price.dp)
print(made.json())
"""


class Shell:
    """A virtual environment that sees this one's packages, and a folder with what the page prints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "package"
        (self.folder / "length_histogram").mkdir(parents=True)
        blocks = re.findall(r"^```(?:toml|python)\n(.*?)^```", TEXT, re.S | re.M)
        for name, block in zip(FILES, blocks, strict=True):
            (self.folder / name).write_text(block)
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        python = venv / "bin" / "python"
        (site,) = venv.glob("lib/python*/site-packages")
        (site / "seen.pth").write_text(f"{ROOT}\n{sysconfig.get_paths()['purelib']}\n")
        for name, command in (
            ("pip", f'{sys.executable} -m pip --python {python} "$@"'),
            ("exchequer", f'{python} -c "from web.cli import main; main()" "$@"'),
        ):
            (venv / "bin" / name).write_text(f"#!/bin/sh\nexec {command}\n")
            (venv / "bin" / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = f"{venv / 'bin'}:{os.environ['PATH']}"
        self.environment = {**kept, "PATH": path, "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )


def test_the_page_is_short():
    assert len(TEXT.splitlines()) <= 150


@pytest.mark.slow
def test_what_the_page_prints_is_refused_conformed_priced_and_run(tmp_path):
    shell = Shell(tmp_path)
    (commands,) = re.findall(r"^```console\n(.*?)^```", TEXT, re.S | re.M)
    touch, install, conform, price = (line.split() for line in commands.splitlines())
    for words in (touch, install):
        assert shell(*words).returncode == 0, shell(*words).stderr
    refused = shell(*price)
    assert refused.returncode
    assert "was refused at registration: it was not conformed" in refused.stderr.replace("\n", " ")

    made = shell(*conform)
    assert made.returncode == 0, made.stderr
    record = json.loads((shell.folder / "length_histogram" / "conformance.json").read_text())
    assert record["mechanism"] == "length-histogram"
    priced = shell(*price, "--json")
    assert json.loads(priced.stdout)["dp"]["epsilon"] == pytest.approx(0.5, rel=1e-4), priced.stderr
    ran = shell("python", "-c", RUN)
    assert len(json.loads(ran.stdout)) == 3, ran.stderr

    algorithm = shell.folder / "length_histogram" / "algorithm.py"
    algorithm.write_text(algorithm.read_text().replace("sensitivity(terms), event", "1, event"))
    assert "not what was conformed" in shell(*price).stderr.replace("\n", " ")
    wrong = shell(*conform)
    assert wrong.returncode == 1
    assert "one unit moves" in wrong.stderr
    assert shell(*price).returncode
