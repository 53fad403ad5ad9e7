"""`exchequer demo`: the whole path on the bundled sample, with real servers, model and noise.

Safe to repeat: the dataset and the model are reused and another job is submitted. Once the allowance is
used up the job is refused, and the steward raises the allowance, with a reason, in the ledger.
"""

import io
import itertools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from accountant.core.errors import invalid
from accountant.core.ledger.export_formats import summary
from accountant.core.privacy.units import exact, up
from accountant.settings import Settings
from web.cli import bootstrap, model_files
from web.cli.answers import show
from web.cli.data import account, data_refused, wait_for_dataset
from web.cli.jobs import decided, explain_refusal, follow
from web.cli.ledger import entry_table
from web.cli.models import model_refused, register_pretrained, wait_for_model
from web.cli.output import Failed, out, printable, save
from web.cli.pretrained import PRETRAINED
from web.cli.stack import sign_in_here, start
from web.cli.verify import verified
from web.client import Api, NotFound

DATASET = "sample-reviews"
SAMPLE = "sample-model"
PEOPLE = {"steward": bootstrap.STEWARD_ROLES, "analyst": ("analyst",), "auditor": ("auditor",)}

EPSILON, DELTA, RAISE = "10", "0.000001", 5
MECHANISM = "private-prediction"
# How a model is asked matters more than which it is: one that has read the internet goes on with a list.
TEMPLATES = {
    SAMPLE: None,  # its own
    "smollm2": "Customer reviews ({label}).\n\nReview: {record}\n\nReview:",
}
SHOWN_TEXTS = 3
SHORT = 60  # characters: shorter texts are shown only for want of longer ones
DECISION_SECONDS = 120.0
WIDTH = 80


class Steps:
    """Numbers the steps, and says at each what happens and why."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, title: str, why: str) -> None:
        out.print()
        heading = Text(f"{next(self._numbers)}  {title}", style="bold")
        out.print(Rule(heading, align="left", style="dim"), width=min(WIDTH, out.width))
        tell(why, "dim")


def tell(text: str, style: str = "") -> None:
    """A paragraph, indented, within 80 columns."""
    paragraph = Padding(Text(printable(text), style=style), (0, 0, 0, 3), expand=False)
    out.print(paragraph, width=min(WIDTH, out.width))


def run(model: str = SAMPLE) -> None:
    """Walk the path with the bundled model or one that `model get` brings. Raises ExchequerError where a step
    fails.
    """
    if model not in TEMPLATES:
        raise invalid("--model", f"the demo has no template for {model!r}", ", ".join(TEMPLATES))
    configured = bootstrap.settings()
    step = Steps()
    step("Start the local stack", "PostgreSQL, Valkey, the web server and two workers, on this machine only.")
    tell(f"All that it keeps is in {_short(configured.home)}.")
    address = start(configured)
    for name, roles in PEOPLE.items():
        bootstrap.ensure_person(configured, name, roles)
    sign_in_here(configured, address)
    tokens = {name: bootstrap.issue_token(configured, name) for name in PEOPLE}
    with (
        Api(address, tokens["steward"]) as steward,
        Api(address, tokens["analyst"]) as analyst,
        Api(address, tokens["auditor"]) as auditor,
    ):
        _register(step, steward, configured, model)
        request = _price(step, analyst, model)
        job = _run_job(step, request, analyst, steward)
        _show_texts(step, analyst, job)
        _audit(step, auditor, configured)
    _say_where(step, configured, address, job)


# --- before the job -----------------------------------------------------------------------------


def _register(step: Steps, steward: Api, configured: Settings, name: str = SAMPLE) -> None:
    """The model, the dataset and its allowance, each unless it is there."""
    sample = bootstrap.sample()
    folder = bootstrap.kept_sample(configured)
    made = name == SAMPLE
    trained_on = "the public part of the made-up reviews" if made else PRETRAINED[name].trained_on
    step(
        "The steward registers a model and a dataset",
        f"The model was trained on {'public reviews' if made else trained_on}; the 'private' reviews are "
        "made up for this demo. A worker, not the web server, opens both and checks them.",
    )
    if not made:
        register_pretrained(steward, PRETRAINED[name], model_files.fetch(PRETRAINED[name], configured))
    elif all(each["name"] != name for each in steward.models()):
        steward.add_model(name, str(folder / sample.MODEL_DIR.name), trained_on)
    model = wait_for_model(steward, name)
    if model["state"] == "invalid":
        raise model_refused(model)
    dataset = _dataset(steward, sample, folder)
    tell(f"model {name}: {model['state']}; dataset {DATASET}: {dataset['state']}")
    step(
        "The steward allows a budget",
        "All jobs together may spend this much, whatever they are and whoever asks. Setting it is the "
        "first entry of the dataset's ledger.",
    )
    if dataset["account"] is None:
        steward.allow(DATASET, EPSILON, DELTA, "demo: first allowance")
        dataset = steward.dataset(DATASET)
    account = dataset["account"]
    tell(f"allowed: ε {account['epsilon']} at δ {account['delta']}. {dataset['remaining']['sentence']}")


def _dataset(steward: Api, sample: Any, folder: Path) -> dict[str, Any]:
    try:
        found = steward.dataset(DATASET)
    except NotFound:
        found = steward.add_dataset(
            {
                "name": DATASET,
                "uri": str(folder / sample.PRIVATE_CSV.name),
                "description": "Made-up reviews of six kinds of business; nobody is in them.",
                "neighbours": "add-remove",
                "label_column": "label",
                "labels": list(sample.LABELS),
                "group_column": "business",
                "groups": list(sample.KINDS),
                "public_size": 3000,
                "policy": {"auto_approve_epsilon": "0", "results_every_seconds": None},
            }
        )
    found = wait_for_dataset(steward, DATASET)
    if found["state"] == "invalid":  # the file may have been moved since
        steward.correct_dataset(DATASET, uri=str(folder / sample.PRIVATE_CSV.name))
        found = wait_for_dataset(steward, DATASET)
    if found["state"] == "invalid":
        raise data_refused(found)
    return found


def parameters(model: str = SAMPLE) -> dict[str, Any]:
    """A job that two cores finish in two minutes: a short text or two from each of 48 batches.

    A pretrained model is a hundred times larger: a sentence from each of 12 batches, of three labels. One a
    text, because small models begin to repeat themselves after the first.
    """
    if model != SAMPLE:
        return {
            "batch_size": 64,
            "batches_per_label": 4,
            "labels": ["hotel positive", "restaurant negative", "bookshop positive"],
            "clip": 8,
            "temperature": 0.8,
            "tokens_per_batch": 44,
            "max_text_tokens": 40,
            "record_tokens": 56,
            "template": TEMPLATES[model],
            "stop": ".",
        }
    return {
        "batch_size": 64,
        "batches_per_label": 4,
        "clip": 9,
        "temperature": 1.0,
        "tokens_per_batch": 72,
        "max_text_tokens": 72,
        "record_tokens": 80,
        "template": bootstrap.sample().TEMPLATE,
    }


def _price(step: Steps, analyst: Api, model: str) -> dict[str, Any]:
    step(
        "The analyst asks for the price",
        "It follows from public parameters alone, so asking is free: every token is drawn from the mean of "
        "64 records' clipped logits.",
    )
    request: dict[str, Any] = {
        "dataset": DATASET,
        "mechanism": MECHANISM,
        "model": model,
        "parameters": parameters(model),
        "purpose": "demo: what do customers write about?",
    }
    quote = analyst.quote(DATASET, MECHANISM, request["parameters"])
    for line in quote["breakdown"]:
        tell(line)
    dp, on = quote["dp"], quote["dataset"]
    tell(f"this job alone: ε {up(dp['epsilon'], 4):.4g} at δ {up(dp['delta'], 6):g}")
    tell(f"jobs of this shape that still fit the allowance: {on['jobs_of_this_shape']}")
    return request


# --- the job ------------------------------------------------------------------------------------


def _run_job(step: Steps, request: dict[str, Any], analyst: Api, steward: Api) -> dict[str, Any]:
    """Submit, decide, and wait. Returns the job that succeeded."""
    step("The analyst submits the job", "Nothing is spent before a steward approves: the policy says so.")
    job = _decided(analyst, request)
    if job["state"] == "refused":
        _raise_allowance(step, job, steward)
        job = _decided(analyst, request)
    tell(f"job {job['id']}: {job['state'].replace('_', ' ')}")
    if job["state"] == "awaiting_approval":
        step(
            "The steward approves it, with a reason",
            "In one transaction the price is reserved in the ledger and the job is queued.",
        )
        steward.approve(job["id"], "demo: made-up reviews, the price fits")
    step(
        "A worker runs it",
        "It writes tokens by sampling; every draw goes through a meter that refuses to pass the "
        "reservation. Progress counts public quantities only.",
    )
    job = follow(analyst, job["id"])
    if job["state"] != "succeeded":
        why = job["failure"] or (job["refusal"] or {}).get("why") or "no reason is public"
        raise Failed(f"the job is {job['state'].replace('_', ' ')}: {why}")
    tell("done: the real cost is committed, and the texts are published in the same transaction")
    return job


def _decided(analyst: Api, request: dict[str, Any]) -> dict[str, Any]:
    job = decided(analyst, analyst.submit(request), DECISION_SECONDS)
    if job["state"] == "submitted":
        raise Failed("no worker has looked at the job. See `exchequer status`, then run the demo again.")
    return job


def _raise_allowance(step: Steps, job: dict[str, Any], steward: Api) -> None:
    """Show the refusal, then let the steward allow more."""
    tell("refused, and a refusal costs nothing:")
    explain_refusal(job)
    account = steward.dataset(DATASET)["account"]
    raised = float(exact(account["epsilon"]) + RAISE)
    step(
        "The steward raises the allowance",
        "That weakens what is promised to the people in the data, so it stands in the ledger with a reason. "
        "The promise holds for the largest allowance ever, if no raise depends on results.",
    )
    steward.allow(DATASET, f"{raised:g}", account["delta"], "demo: another run on made-up reviews")
    tell(f"allowed: ε {account['epsilon']} → {raised:g}")


def _show_texts(step: Steps, analyst: Api, job: dict[str, Any]) -> None:
    """Three texts, each of another kind of business."""
    file = io.BytesIO()
    analyst.save_result(job["id"], file)
    texts = [json.loads(line) for line in file.getvalue().splitlines()]
    step(
        f"What it wrote: {len(texts)} synthetic texts, {SHOWN_TEXTS} of them here",
        "They show what is common in the private reviews, and little of any one of them.",
    )
    chosen: dict[str, dict[str, Any]] = {}
    for each in sorted(texts, key=lambda text: (not text["complete"], -min(SHORT, len(text["text"])))):
        chosen.setdefault(_kind(each), each)
    panels = [
        Panel(
            Text(printable(each["text"])),
            title=Text(printable(each["label"])),
            title_align="left",
            border_style="dim",
        )
        for each in list(chosen.values())[:SHOWN_TEXTS]
    ]
    out.print(Group(*panels), width=min(WIDTH, out.width))
    themes = bootstrap.sample().THEMES
    told = sum(themes[_kind(each)] in each["text"] for each in texts)
    examples = ", ".join(f"{kind}: {themes[kind]}" for kind in list(chosen)[:SHOWN_TEXTS])
    unlike = " and the public ones, on which the model was trained, are not" if job["model"] == SAMPLE else ""
    tell(f"{told} of {len(texts)} mention what the private reviews are full of{unlike} ({examples}).")


def _kind(text: dict[str, Any]) -> str:
    """The kind of business in a label such as "hotel positive"."""
    return str(text["label"]).split(" ", maxsplit=1)[0]


# --- after the job ------------------------------------------------------------------------------


def _audit(step: Steps, auditor: Api, configured: Settings) -> None:
    """The ledger, its export, and the check that needs no server."""
    step(
        "The auditor reads the ledger and checks it offline",
        "Every entry carries the hash of the one before; the check recomputes hashes, prices and balances "
        "from the file alone.",
    )
    out.print()
    out.print(entry_table(list(reversed(auditor.ledger(DATASET, limit=50)))), width=min(WIDTH, out.width))
    out.print()
    show(account(auditor.dataset(DATASET)))
    exported = configured.home / "demo-ledger.jsonl"
    save(str(exported), lambda file: auditor.save_ledger(DATASET, "jsonl", file))
    found = verified(str(exported))
    live = summary(found.books, found.live)["live_reservations"]
    tell(f"{_command()} verify {_short(exported)}")
    out.print("verify: ok", style="bold green")
    tell(f"{found.entries} entries, {live} live reservations, head {found.head[:16]}…")


def _say_where(step: Steps, configured: Settings, address: str, job: dict[str, Any]) -> None:
    step(
        "Your turn: a job of your own, in a browser",
        "An analyst asks and a steward decides: two people, so use two windows, one of them private.",
    )
    turns = (
        (
            "analyst",
            f"/datasets/{DATASET}/submit?like={job['id']}",
            "The form is filled in and priced. Say what the texts are for, and submit the job.",
        ),
        ("steward", "/inbox", "Read the purpose and the price, write a reason, approve."),
        ("auditor", f"/datasets/{DATASET}", "See both in the ledger, and take it home as a file."),
    )
    for number, (name, path, what) in enumerate(turns, start=1):
        out.print()
        tell(f"{number}. as the {name}: {what}")
        # In one piece however long it is: a terminal opens it, and a person copies it whole.
        out.print(Text(f"   {address}{path}"), soft_wrap=True)
        kept = bootstrap.password_file(configured, name)
        password = f"the password {kept.read_text().strip()}" if kept.exists() else "your own password"
        tell(f"sign in as {name} with {password}")
    command = _command()
    out.print()
    tell(
        f"The command line is signed in as the steward: `{command} inbox`, then `{command} approve ID "
        f"--reason TEXT`. Stop with `{command} down`; `{command} up` goes on where it was.",
        "dim",
    )


def _command() -> str:
    """Return the command that calls this program: its name if the shell finds it."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "exchequer" and shutil.which("exchequer") is None else "exchequer"


def _short(path: Path) -> str:
    """A path as a person would type it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
