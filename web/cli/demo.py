"""`exchequer demo`: the whole path on the bundled sample, with real servers, model and noise.

Safe to repeat: the dataset and the model are reused and another job is submitted. Once the
allowance is used up the job is refused, and the steward raises the allowance, with a reason, in the
ledger.
"""

import io
import itertools
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.text import Text

from accountant.core.errors import invalid
from accountant.core.ledger.export_formats import summary
from accountant.core.privacy.units import exact, up
from accountant.settings import Settings
from web.cli import bootstrap, model_files
from web.cli.answers import show
from web.cli.data import account, data_refused, wait_for_dataset
from web.cli.jobs import decided, explain_refusal
from web.cli.ledger import entry_table
from web.cli.model_files import PRETRAINED
from web.cli.models import model_refused, register_pretrained, wait_for_model
from web.cli.output import Failed, err, note, out, printable, save
from web.cli.stack import PROFILE, sign_in_here, start
from web.cli.verify import verified
from web.client import Api, NotFound, profiles, progress
from web.client.profiles import Profile

DATASET = "sample-reviews"
SAMPLE = "sample-model"
SMOLLM2 = "smollm2"
MODELS = (SAMPLE, SMOLLM2)
PEOPLE = {"steward": bootstrap.STEWARD_ROLES, "analyst": ("analyst",), "auditor": ("auditor",)}

EPSILON, DELTA, RAISE = "10", "0.000001", 5
MECHANISM = "private-prediction"
#: A model that has read the internet goes on with a list.
SMOLLM2_TEMPLATE = "Customer reviews ({label}).\n\nReview: {record}\n\nReview:"
SHOWN_TEXTS = 3
SHORT = 60  # characters: shorter texts are shown only for want of longer ones
DECISION_SECONDS = 120.0
WIDTH = 80


class Story:
    """Prints the steps with their outcome; with `verbose`, why each is taken, and figures."""

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self._numbers = itertools.count(1)

    def step(self, title: str, why: str) -> None:
        """Begin a step."""
        if self.verbose:
            out.print()
        out.print(
            Text(f"{next(self._numbers)}  {title}", style="bold"), width=min(WIDTH, out.width)
        )
        self.more(why)

    def tell(self, text: str, style: str = "") -> None:
        """Print a paragraph, indented, within 80 columns."""
        paragraph = Padding(Text(printable(text), style=style), (0, 0, 0, 3), expand=False)
        out.print(paragraph, width=min(WIDTH, out.width))

    def more(self, text: str) -> None:
        """Print a paragraph if it is verbose."""
        if self.verbose:
            self.tell(text, "dim")

    def address(self, text: str) -> None:
        """Print an address in one piece: a terminal opens it, and a person copies it whole."""
        out.print(Text(f"   {text}"), soft_wrap=True)

    def note(self, line: str) -> None:
        """Print a line about the start; that a process is ready, only if it is verbose."""
        if self.verbose or not line.endswith((" ready", " done")):
            note(f"   {line}")


def run(model: str = SAMPLE, verbose: bool = False) -> None:
    """Walk the path with the bundled model or one that `model get` brings.

    Raises ExchequerError if a step fails.
    """
    if model not in MODELS:
        raise invalid("--model", f"the demo has no template for {model!r}", ", ".join(MODELS))
    configured = bootstrap.settings()
    story = Story(verbose)
    story.step(
        "Start the service on this machine",
        "PostgreSQL, Valkey, the web server and two workers. Nothing listens beyond this machine.",
    )
    address = start(configured, story.note)
    for name, roles in PEOPLE.items():
        bootstrap.ensure_person(configured, name, roles)
    sign_in_here(configured, address)
    story.tell(f"{address}, with all that it keeps in {_short(configured.home)}")
    tokens = {name: bootstrap.issue_token(configured, name) for name in PEOPLE}
    _keep_profiles(address, tokens)
    with (
        Api(address, tokens["steward"]) as steward,
        Api(address, tokens["analyst"]) as analyst,
        Api(address, tokens["auditor"]) as auditor,
    ):
        _register(story, steward, configured, model)
        request, quote = _price(story, analyst, model)
        job = _run_job(story, request, analyst, steward)
        _show_texts(story, analyst, job)
        _audit(story, auditor, configured)
        _say_what_it_means(story, analyst, quote)
    _say_where(story, configured, address, job)


def _keep_profiles(address: str, tokens: dict[str, str]) -> None:
    """Let commands and notebooks speak as each person: --profile demo-analyst, for one."""
    in_use = profiles.read().current
    for name, token in tokens.items():
        profiles.keep(Profile(address, name, token), PROFILE + name)
    if in_use is not None:
        profiles.use(in_use)


# --- before the job -----------------------------------------------------------------------------


def _register(story: Story, steward: Api, configured: Settings, name: str = SAMPLE) -> None:
    """The model, the dataset and its allowance, each unless it is there."""
    sample = bootstrap.sample()
    folder = bootstrap.kept_sample(configured)
    bundled = name == SAMPLE
    trained_on = (
        "the public part of the made-up reviews" if bundled else PRETRAINED[name].trained_on
    )
    story.step(
        "The steward registers 3,000 reviews and a model that has never seen them",
        "The reviews play the private data and are made up. The model was trained on "
        f"{trained_on}. A worker, not the web server, opens both and checks them.",
    )
    if not bundled:
        register_pretrained(
            steward, PRETRAINED[name], model_files.fetch(PRETRAINED[name], configured)
        )
    elif all(registered["name"] != name for registered in steward.models()):
        steward.add_model(name, str(folder / sample.MODEL_DIR.name), trained_on)
    model = wait_for_model(steward, name)
    if model["state"] == "invalid":
        raise model_refused(model)
    dataset = _dataset(steward, sample, folder)
    story.tell(f"model {name}: {model['state']}; dataset {DATASET}: {dataset['state']}")
    story.step(
        "The steward allows a budget",
        "All jobs together may spend this much, whatever they are and whoever asks. Setting it is "
        "the first entry of the dataset's ledger.",
    )
    if dataset["account"] is None:
        steward.allow(DATASET, EPSILON, DELTA, "demo: first allowance")
        dataset = steward.dataset(DATASET)
    allowed = dataset["account"]
    story.tell(f"ε {allowed['epsilon']} at δ {allowed['delta']} for all jobs together")
    story.more(dataset["remaining"]["sentence"])


def _dataset(steward: Api, sample: Any, folder: Path) -> dict[str, Any]:
    try:
        dataset = steward.dataset(DATASET)
    except NotFound:
        dataset = steward.add_dataset(
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
    dataset = wait_for_dataset(steward, DATASET)
    if dataset["state"] == "invalid":  # the file may have been moved since
        steward.correct_dataset(DATASET, uri=str(folder / sample.PRIVATE_CSV.name))
        dataset = wait_for_dataset(steward, DATASET)
    if dataset["state"] == "invalid":
        raise data_refused(dataset)
    return dataset


def parameters(model: str = SAMPLE) -> dict[str, Any]:
    """Return a job of half a minute on two cores: a review for each label, from half of its private
    reviews.

    Nobody knows which half, so it costs less than if anybody did. A pretrained model is a hundred
    times larger: a sentence from each of 12 batches, of three labels. One a text, because small
    models begin to repeat themselves after the first.
    """
    if model == SMOLLM2:
        return {
            "batch_size": 64,
            "batches_per_label": 4,
            "amplification": "allocation",
            "labels": ["hotel positive", "restaurant negative", "bookshop positive"],
            "clip": 8,
            "temperature": 0.8,
            "tokens_per_batch": 44,
            "max_text_tokens": 40,
            "record_tokens": 56,
            "template": SMOLLM2_TEMPLATE,
            "stop": ".",
        }
    return {
        "batch_size": 125,
        "batches_per_label": 2,
        "batches_to_run": 1,
        "amplification": "allocation",
        "clip": 9,
        "temperature": 1.0,
        "tokens_per_batch": 72,
        "max_text_tokens": 72,
        "record_tokens": 80,
        "template": bootstrap.sample().TEMPLATE,
    }


def _price(story: Story, analyst: Api, model: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Show the price of a request. Returns both."""
    chosen = parameters(model)
    story.step(
        "The analyst asks what a job costs, which is free and reads nothing",
        f"The price follows from public parameters alone: every token is drawn from the mean of "
        f"{chosen['batch_size']} reviews' clipped logits.",
    )
    request = {
        "dataset": DATASET,
        "mechanism": MECHANISM,
        "model": model,
        "parameters": chosen,
        "purpose": "for a look at what customers write about",
    }
    quote = analyst.quote(DATASET, MECHANISM, chosen)
    for line in quote["breakdown"]:
        story.more(line)
    known = {
        name: chosen[name] for name in chosen if name not in ("amplification", "batches_to_run")
    }
    plain = analyst.quote(DATASET, MECHANISM, known)
    story.tell(
        f"ε {_epsilon(quote)} at δ {up(quote['dp']['delta'], 6):g}, because nobody knows which "
        f"batch holds a review; ε {_epsilon(plain)} if somebody did"
    )
    story.more(
        f"jobs of this shape that still fit the allowance: {quote['dataset']['jobs_of_this_shape']}"
    )
    return request, quote


def _epsilon(quote: dict[str, Any]) -> str:
    return f"{up(quote['dp']['epsilon'], 2):.2f}"


# --- the job ------------------------------------------------------------------------------------


def _run_job(story: Story, request: dict[str, Any], analyst: Api, steward: Api) -> dict[str, Any]:
    """Submit, decide, and wait. Returns the job that succeeded."""
    story.step(
        "The analyst submits the job, and the steward approves it",
        "Nothing is spent before a steward approves: the policy says so. Then, in one transaction, "
        "the price is reserved in the ledger and the job is queued.",
    )
    job = _decided(analyst, request)
    if job["state"] == "refused":
        _raise_allowance(story, job, steward)
        job = _decided(analyst, request)
    if job["state"] == "awaiting_approval":
        steward.approve(job["id"], "demo: made-up reviews, the price fits")
    story.tell(f"{job['name']}: its price is set aside before anything is read")
    story.step(
        "A worker runs it",
        "It writes tokens by sampling; every draw goes through a meter that refuses to pass the "
        "reservation. Progress counts public quantities only.",
    )
    began = time.monotonic()
    job = _followed(analyst, job["id"])
    if job["state"] != "succeeded":
        why = job["failure"] or (job["refusal"] or {}).get("why") or "no reason is public"
        raise Failed(f"the job is {progress.state_text(job)}: {why}")
    story.tell(
        f"{progress.amount_text(job)} in {time.monotonic() - began:.0f} s; charged and published "
        "at once"
    )
    return job


def _followed(analyst: Api, job_id: str) -> dict[str, Any]:
    """Return the job when it has ended. Shows a bar, or a line for each third of the way."""

    tenths = itertools.count(1)

    def third(line: str) -> None:
        if ": " in line and next(tenths) % 3 == 0:
            note(f"   {line}")

    with progress.shown(err, third) as show_progress:
        return progress.watch(lambda: analyst.job(job_id), progress.ended, show_progress)


def _decided(analyst: Api, request: dict[str, Any]) -> dict[str, Any]:
    job = decided(analyst, analyst.submit(request), DECISION_SECONDS)
    if job["state"] == "submitted":
        raise Failed(
            "no worker took the job. Look at `exchequer stack status`, then run the demo again."
        )
    return job


def _raise_allowance(story: Story, job: dict[str, Any], steward: Api) -> None:
    """Show the refusal, then let the steward allow more."""
    story.tell("refused, and a refusal costs nothing:")
    explain_refusal(job)
    account = steward.dataset(DATASET)["account"]
    raised = float(exact(account["epsilon"]) + RAISE)
    story.step(
        "The steward raises the allowance",
        "That weakens what is promised to the people in the data, so it stands in the ledger with "
        "a reason. The promise holds for the largest allowance ever, if no raise depends on "
        "results.",
    )
    steward.allow(DATASET, f"{raised:g}", account["delta"], "demo: another run on made-up reviews")
    story.tell(f"allowed: ε {account['epsilon']} → {raised:g}")


def _show_texts(story: Story, analyst: Api, job: dict[str, Any]) -> None:
    """Three whole texts, each of another kind of business."""
    file = io.BytesIO()
    analyst.save_result(job["id"], file)
    texts = [json.loads(line) for line in file.getvalue().splitlines()]
    whole = [text for text in texts if text["complete"]] or texts
    story.step(
        f"It wrote {len(whole)} whole reviews; {SHOWN_TEXTS} of them",
        "They show what is common in the private reviews, and little of any one of them. "
        f"{len(texts) - len(whole)} more texts were cut when their batch had written all of its "
        "tokens.",
    )
    chosen: dict[str, dict[str, Any]] = {}
    for candidate in sorted(whole, key=lambda text: -min(SHORT, len(text["text"]))):
        chosen.setdefault(_kind(candidate), candidate)
    for candidate in list(chosen.values())[:SHOWN_TEXTS]:
        story.tell(f"{candidate['label']}: “{candidate['text'].strip()}”")
    themes = bootstrap.sample().THEMES
    mentioned = sum(themes[_kind(text)] in text["text"] for text in whole)
    examples = ", ".join(f"{kind}: {themes[kind]}" for kind in list(chosen)[:SHOWN_TEXTS])
    unlike = " and public ones are not" if job["model"] == SAMPLE else ""
    story.tell(
        f"{mentioned} of {len(whole)} mention what the private reviews are full of{unlike} "
        f"({examples})."
    )


def _kind(text: dict[str, Any]) -> str:
    """Return the kind of business in a label such as "hotel positive"."""
    return str(text["label"]).split(" ", maxsplit=1)[0]


# --- after the job ------------------------------------------------------------------------------


def _audit(story: Story, auditor: Api, configured: Settings) -> None:
    """The ledger, its export, and the check that needs no server."""
    story.step(
        "The auditor checks the ledger offline",
        "Every entry carries the hash of the one before; the check recomputes hashes, prices and "
        "balances from the file alone.",
    )
    if story.verbose:
        out.print(
            entry_table(list(reversed(auditor.ledger(DATASET, limit=50)))),
            width=min(WIDTH, out.width),
        )
        show(account(auditor.dataset(DATASET)))
    exported = configured.home / "demo-ledger.jsonl"
    save(str(exported), lambda file: auditor.save_ledger(DATASET, "jsonl", file))
    ledger = verified(str(exported))
    live = summary(ledger.books, ledger.live)["live_reservations"]
    story.address(f"{_command()} verify {_short(exported)}")
    story.tell(f"{ledger.entries} entries, {live} live reservations, head {ledger.head[:16]}…")
    out.print("verify: ok", style="bold green")


def _say_what_it_means(story: Story, analyst: Api, quote: dict[str, Any]) -> None:
    """Bound what the texts tell of one person."""
    from web.meaning import at_most

    bound = analyst.meaning(_epsilon(quote), DELTA)["best_success"]
    out.print()
    story.tell(
        f"What ε {_epsilon(quote)} means for a person who wrote one of the reviews: somebody who "
        "reads these texts and knows all other reviews, but not which batch this one lay in, can "
        f"tell whether it was among them in at most {at_most(bound)} of cases; guessing alone is "
        "right in 50 %."
    )


def _say_where(story: Story, configured: Settings, address: str, job: dict[str, Any]) -> None:
    out.print()
    out.print(Text("Your turn, in a browser", style="bold"))
    story.tell("An analyst asks and a steward decides: use two windows, one of them private.")
    turns = (
        (
            "analyst",
            f"/datasets/{DATASET}/submit?like={job['id']}",
            "say what the texts are for, and ask.",
        ),
        ("steward", "/inbox", "read the purpose and the price, write a reason, approve."),
        ("auditor", f"/datasets/{DATASET}", "see both in the ledger, and take it home as a file."),
    )
    for name, path, what in turns:
        password_file = bootstrap.password_file(configured, name)
        password = (
            f"password {password_file.read_text().strip()}"
            if password_file.exists()
            else "your own password"
        )
        story.tell(f"{name} ({password}): {what}")
        story.address(f"{address}{path}")
    command = _command()
    story.tell(
        f"The command line is the steward's: `{command} decision list`. The analyst's begins with "
        f"`{command} --profile demo-analyst`, and examples/notebook.ipynb uses both. Stop with "
        f"`{command} stack down`; `{command} stack up` goes on where it was.",
        "dim",
    )


def _command() -> str:
    """Return the command that calls this program: its name if the shell finds it."""
    called = Path(sys.argv[0])
    return (
        str(called)
        if called.name == "exchequer" and shutil.which("exchequer") is None
        else "exchequer"
    )


def _short(path: Path) -> str:
    """Return a path as a person would type it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
