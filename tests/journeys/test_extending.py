"""A mechanism is two files: a small one, added to a copy of the tree, is priced, tried and run."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEW = Path(__file__).with_name("new_mechanism")
PRICE = "accountant/core/mechanisms/length_histogram.py"
ALGORITHM = "workers/mechanisms/length_histogram.py"
CONFORM = (
    "from tests.workers.conformance import kit; "
    "kit.conform('accountant.core.mechanisms.length_histogram')"
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
    """Return a function that runs Python in a copy of the code with the mechanism's two files."""
    for name in ("accountant", "workers", "web", "tests/workers/conformance"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(NEW / "price.py", tmp_path / PRICE)
    shutil.copy(NEW / "algorithm.py", tmp_path / ALGORITHM)

    def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    run.folder = tmp_path
    return run


@pytest.mark.slow
def test_two_files_are_a_mechanism_that_is_priced_tried_and_run(tree):
    priced = tree(COMMAND, "price", "length-histogram", "--set", "epsilon=0.5", "--json")
    assert json.loads(priced.stdout)["dp"]["epsilon"] == pytest.approx(0.5, rel=1e-4), priced.stderr
    tried = tree(CONFORM)
    assert tried.returncode == 0, tried.stderr
    ran = tree(RUN)
    assert len(json.loads(ran.stdout)) == 3, ran.stderr

    algorithm = tree.folder / ALGORITHM
    algorithm.write_text(algorithm.read_text().replace("sensitivity(terms), event", "1, event"))
    assert "one unit moves" in tree(CONFORM).stderr
