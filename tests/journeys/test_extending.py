"""docs/extending.md as it stands: the two files that it prints, tried by the kit, priced and run."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text("utf-8")
PRICE, ALGORITHM = "accountant/core/mechanisms/length_histogram.py", "workers/mechanisms/length_histogram.py"
CONFORM = (
    "from tests.workers.conformance import kit; kit.conform('accountant.core.mechanisms.length_histogram')"
)
COMMAND = "from web.cli import main; main()"
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


@pytest.fixture
def tree(tmp_path):
    """A copy of the code with the files of the page; returns a function that runs Python in it."""
    for name in ("accountant", "workers", "web", "tests/workers/conformance"):
        shutil.copytree(ROOT / name, tmp_path / name)
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.S | re.M)
    for name, block in zip((PRICE, ALGORITHM), blocks, strict=True):
        (tmp_path / name).write_text(block)

    def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    run.folder = tmp_path
    return run


def test_the_page_is_short():
    assert len(TEXT.splitlines()) <= 150


@pytest.mark.slow
def test_what_the_page_prints_is_priced_tried_and_run(tree):
    (commands,) = re.findall(r"^```console\n(.*?)^```", TEXT, re.S | re.M)
    exchequer, *price = commands.splitlines()[0].split()
    assert exchequer == "exchequer"
    priced = tree(COMMAND, *price, "--json")
    assert json.loads(priced.stdout)["dp"]["epsilon"] == pytest.approx(0.5, rel=1e-4), priced.stderr
    tried = tree(CONFORM)
    assert tried.returncode == 0, tried.stderr
    ran = tree(RUN)
    assert len(json.loads(ran.stdout)) == 3, ran.stderr

    algorithm = tree.folder / ALGORITHM
    algorithm.write_text(algorithm.read_text().replace("sensitivity(terms), event", "1, event"))
    assert "one unit moves" in tree(CONFORM).stderr
