"""The Helm chart renders for three clusters, and what it starts is in the tree.

Each command runs as a process, with the environment and the probes that the chart states.
"""

import copy
import importlib.util
import os
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from accountant.core.ledger.allowances import Allowance
from accountant.settings import Settings
from accountant.transactions import allowances, submission
from accountant.transactions.job_requests import JobRequest
from tests.web.serving import ROOT, free_port
from tests.workers.conftest import wait_for
from tests.workers.jobs.test_jobs import Desk
from web.stack.addresses import ROLES

helm = pytest.importorskip("helm_python", reason="pip install helm-python-sdk kubernetes-validate")
schemas = pytest.importorskip("kubernetes_validate")

CHART = ROOT / "deploy" / "chart"
GPUS = [
    {"class": "cpu", "gib": 2, "replicas": 1, "gpus": 0, "resources": {"limits": {"cpu": "2"}}},
    {
        "class": "gpu80",
        "gib": 80,
        "replicas": 0,
        "most": 4,
        "gpus": 2,
        "resources": {"limits": {"memory": "64Gi"}},
    },
]
VALUES = {
    "default": {},
    "embedded": {"embedded": True},
    "gpus": {
        "keda": {"enabled": True},
        "workers": GPUS,
        "settings": {
            "EXCHEQUER_RESULTS_URL": "s3://bucket/results",
            "EXCHEQUER_SIGNED_LOGS_FOLDER": "s3://bucket/signed-logs",
            "EXCHEQUER_UPLOADS_FOLDER": "s3://bucket/uploads",
            "EXCHEQUER_PUBLIC_LOG": "s3://bucket/public-log",
        },
        "ledgerLog": "s3://bucket/log",
        "network": {"outside": {"worker": [443]}},
    },
}
#: What gives a command a network of its own, in which only itself listens.
_APART = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
ALONE = _APART if os.system(f"{shlex.join([*_APART, 'true'])} 2>&-") == 0 else []
#: Read from the environment by no field of the settings.
FURTHER = {
    "EXCHEQUER_ALIVE_FILE",
    *(f"DATABASE_{process.upper()}_URL" for process in ROLES),
}


def rendered(name: str) -> list[dict]:
    files = helm.Chart.load(CHART).render(copy.deepcopy(VALUES[name]), name="x", is_install=True)
    return [each for text in files.values() for each in yaml.safe_load_all(text) if each]


def ours(name: str) -> dict[str, dict]:
    """The container of each Deployment and Job that runs this project, by its object's name."""
    found = {}
    for each in rendered(name):
        if each["kind"] in ("Deployment", "Job"):
            (container,) = each["spec"]["template"]["spec"]["containers"]
            found[each["metadata"]["name"].removeprefix("x-")] = container
    return found


@pytest.mark.parametrize("name", VALUES)
def test_what_is_rendered_is_of_kubernetes_schemas(name):
    for each in rendered(name):
        if not each["apiVersion"].startswith("keda.sh/"):  # whose schemas are its own
            schemas.validate(each, "1.31", strict=True)


@pytest.mark.parametrize("name", VALUES)
def test_commands_settings_and_probes_are_in_the_tree(name):
    known = {f"EXCHEQUER_{field.upper()}" for field in Settings.model_fields} | FURTHER
    known |= {str(field.validation_alias) for field in Settings.model_fields.values()}
    for which, container in ours(name).items():
        program, *arguments = container["command"]
        modules = {"gunicorn": "gunicorn", "celery": "celery"}
        module = arguments[1] if program == "python" else modules[program]
        assert importlib.util.find_spec(module) is not None, which
        assert {each["name"] for each in container["env"]} <= known, which
        closed = container["securityContext"]
        assert closed["readOnlyRootFilesystem"], which
        assert closed["capabilities"] == {"drop": ["ALL"]}, which
        assert container["resources"]["limits"], which
        assert which == "migrate" or "livenessProbe" in container, which


@pytest.mark.parametrize(("name", "mounts"), [("default", 1), ("gpus", 0)])
def test_what_lies_in_an_object_store_needs_no_volume(name, mounts):
    for which, container in ours(name).items():
        environment = {each["name"]: each.get("value") for each in container["env"]}
        if "EXCHEQUER_LEDGER_LOG" in environment:
            paths = [each["mountPath"] for each in container["volumeMounts"]]
            log = environment["EXCHEQUER_LEDGER_LOG"]
            assert ("://" in log, paths.count(log)) == (not mounts, mounts), which
            assert sum("ledger-log" in path for path in paths) == mounts, which
            for each in ("signed-logs", "public-log"):
                assert paths.count(f"/var/lib/exchequer/{each}") == mounts, which
            names = [each["name"] for each in container["env"]]
            assert names.count("EXCHEQUER_PUBLIC_LOG") == 1, which
            if environment["EXCHEQUER_RUNS_AS"] != "signer":
                for each in ("results", "uploads"):
                    assert paths.count(f"/var/lib/exchequer/{each}") == mounts, which


@pytest.mark.parametrize(("name", "claims"), [("default", True), ("gpus", False)])
def test_where_all_lies_in_object_stores_no_volume_is_shared(name, claims):
    for each in rendered(name):
        if each["kind"] == "Deployment" and "selector" in each["spec"]:
            volumes = [
                volume["name"] for volume in each["spec"]["template"]["spec"].get("volumes", [])
            ]
            if "secrets" in volumes and not each["metadata"]["name"].startswith("x-embedded"):
                assert ("storage" in volumes) == claims, each["metadata"]["name"]


def test_workers_of_a_class_scale_with_its_waiting_parts():
    scaled = [each for each in rendered("gpus") if each["kind"] == "ScaledObject"]
    queries = [each["spec"]["triggers"][0]["metadata"]["query"] for each in scaled]
    assert [query.rpartition("hardware IN ")[2] for query in queries] == [
        "('cpu')",
        "('gpu80', '')",
    ]
    assert ours("gpus")["worker-gpu80"]["resources"]["limits"]["nvidia.com/gpu"] == 2


@pytest.mark.parametrize(
    ("gpus", "joined", "resource", "processes"),
    [
        (0, 1, "", "1"),
        (8, 1, "", "8"),
        (8, 4, "", "2"),
        (7, 4, "", "2"),
        (2, 8, "", "1"),
        (4, 2, "nvidia.com/mig-1g.10gb", "4"),
    ],
)
def test_a_pod_counts_for_the_processes_that_its_launcher_starts(gpus, joined, resource, processes):
    values = copy.deepcopy(VALUES["gpus"])
    values["settings"]["EXCHEQUER_GPUS_PER_WORKER"] = joined
    values["workers"] = [{**GPUS[1], "gpus": gpus, "gpuResource": resource}]
    files = helm.Chart.load(CHART).render(values, name="x", is_install=True)
    (text,) = [text for name, text in files.items() if name.endswith("keda.yaml")]
    (scaled,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "ScaledObject"]
    assert scaled["spec"]["triggers"][0]["metadata"]["targetQueryValue"] == processes


#: What leaves the namespace, by process: everybody resolves names and reaches the database.
REACHES = {"web": {6379, 443}, "relay": {6379, 443, 587}, "signer": set(), "migrate": set()}


def test_a_process_reaches_its_servers_and_nothing_else():
    for each in rendered("default"):
        if each["kind"] == "NetworkPolicy":
            name = each["metadata"]["name"].removeprefix("x-")
            (egress,) = each["spec"]["egress"]
            ports = {port["port"] for port in egress["ports"]}
            assert ports == {53, 5432} | REACHES.get(name, {6379}), name
            assert bool(each["spec"]["ingress"]) == (name == "web"), name


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_web_nodes_and_two_workers_of_the_chart_run_a_job(
    servers, database_url, engine, tmp_path
):
    """With this machine's servers and folders in place of the cluster's.

    Where root may make networks each process has its own, and reaches the servers by sockets.
    """
    (tmp_path / "run").mkdir()
    containers, ports = ours("default"), [free_port(), free_port()]

    def started(which: str, name: str, number: int = 0) -> subprocess.Popen[bytes]:
        container = containers[which]
        stated = {each["name"]: each["value"] for each in container["env"]}
        for variable, value in stated.items():
            stated[variable] = value.replace("/var/lib/exchequer", str(tmp_path / "home"))
        stated |= {"DATABASE_URL": database_url, "BROKER_URL": servers.broker_url}
        stated |= {"EXCHEQUER_KEYS": str(tmp_path / "keys")}
        for variable, place in (
            ("EXCHEQUER_ALIVE_FILE", str(tmp_path / "run" / name)),
            ("EXCHEQUER_DATA_ROOTS", f"{ROOT}|{tmp_path}"),
            ("EXCHEQUER_MODEL_ROOTS", str(ROOT)),
            ("EXCHEQUER_PROBE_ADDRESS", f"127.0.0.1:{ports[number]}"),
        ):
            if variable in stated:
                stated[variable] = place
        program, *arguments = container["command"]
        bound = [each.replace("0.0.0.0:8750", f"127.0.0.1:{free_port()}") for each in arguments]
        command = [sys.executable, *([] if program == "python" else ["-m", program]), *bound]
        return subprocess.Popen([*ALONE, *command], cwd=ROOT, env={**os.environ, **stated})

    with ExitStack() as running:
        nodes = []
        for which, name, number in (
            ("web", "web", 0),
            ("web", "web", 1),
            ("relay", "relay", 0),
            ("signer", "signer", 0),
            ("checks", "checks", 0),
            ("worker-cpu", "first", 0),
            ("worker-cpu", "second", 0),
        ):
            process = started(which, name, number)
            nodes += [process.pid] if which == "web" else []
            running.callback(process.wait, 60)
            running.callback(process.terminate)
        probe = containers["web"]["readinessProbe"]["httpGet"]["path"]
        for node, port in zip(nodes, ports, strict=True):
            url = f"http://127.0.0.1:{port}{probe}"
            wait_for(lambda node=node, url=url: _answers(node, url), bool, 120)
        for name in ("relay", "signer", "checks", "first", "second"):
            (*_, look) = containers["relay"]["livenessProbe"]["exec"]["command"]
            look = look.replace("/tmp/alive", str(tmp_path / "run" / name))
            wait_for(
                lambda look=look: subprocess.run(["sh", "-c", look]).returncode == 0, bool, 120
            )
        desk = Desk(engine, tmp_path)
        dataset = desk.dataset()
        allowances.allow(engine, dataset, Allowance("10", "0.000001", "test"), desk.steward)
        request = JobRequest(dataset, "noisy-count", None, {"epsilon": 0.1}, "test")
        job_id = submission.submit(engine, request, desk.analyst)
        assert desk.ended(job_id, 120)["state"] == "succeeded"


def _answers(node: int, url: str) -> bool:
    """Whether an address of a process's own network answers 200."""
    ask = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)"
    there = ["nsenter", f"--net=/proc/{node}/ns/net"] if ALONE else []
    asked = [*there, sys.executable, "-c", ask, url]
    return subprocess.run(asked, capture_output=True).returncode == 0


def test_the_chart_names_the_images_of_compose():
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    values = yaml.safe_load((Path(CHART) / "values.yaml").read_text())
    for service, image in (("web", "web"), ("worker", "worker")):
        assert f":-{values['images'][image]}}}" in composed["services"][service]["image"]
