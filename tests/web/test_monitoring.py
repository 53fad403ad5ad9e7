"""Alerts and the dashboard: every metric in them is one that the service has."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from accountant.queries.figures import FIGURES
from tests.web.serving import ROOT

FOLDER = ROOT / "monitoring"
ALERTS = FOLDER / "alerts.yml"
#: With the labels that each may be asked for.
METRICS = {
    **{f"exchequer_{name}": set(figure.labels) for name, figure in FIGURES.items()},
    "exchequer_database_up": set(),
    "exchequer_entries_not_logged": set(),
    "exchequer_http_requests_total": {"route", "method", "status"},
    "exchequer_http_request_seconds_bucket": {"route", "le"},
}
RULES = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
PANELS = json.loads((FOLDER / "dashboard.json").read_text())["panels"]


@pytest.mark.parametrize(
    "expression",
    [rule["expr"] for rule in RULES]
    + [target["expr"] for panel in PANELS for target in panel["targets"]],
)
def test_every_metric_and_label_is_there(expression):
    named = re.findall(r"(exchequer_\w+)(?:\{([^}]*)\})?", expression)
    assert named
    for metric, selected in named:
        assert metric in METRICS
        assert set(re.findall(r"(\w+)[=!]", selected)) <= METRICS[metric]


def test_ten_alerts_say_what_to_do():
    assert len(RULES) == len({rule["alert"] for rule in RULES}) == 10
    for rule in RULES:
        assert re.fullmatch(r"[^.?]+\. .+\.", rule["annotations"]["summary"]), rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_reads_the_alerts():
    told = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "10 rules found" in told.stdout
    whole = ["promtool", "check", "config", FOLDER / "prometheus.yml"]
    assert subprocess.run(whole, capture_output=True).returncode == 0
