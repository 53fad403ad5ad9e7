"""The initial values of a request's form: defaults that fit, an earlier job's, or its artifacts.

What is offered are public facts, the asker's own jobs, and what other people share.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from accountant.catalogue import corpora
from accountant.core import mechanisms
from accountant.core.errors import NotFound
from accountant.core.mechanisms import rehearsal
from accountant.core.mechanisms.aug_pe import evolution_shape
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.planning import PLANNED
from accountant.core.privacy.price import Neighbours, Terms
from accountant.identities.actor import Actor
from accountant.queries import datasets
from accountant.queries import jobs as job_queries
from accountant.queries import models as model_queries
from accountant.schema.base import documents
from accountant.transactions import artifacts
from web.api import proposals
from web.api.parsing import read_id
from web.context import engine
from web.views import schema_forms
from web.views.forms import Form
from web.views.schema_forms import PREFIX

DEFAULT_MECHANISM = "private-prediction"
#: What a form begins with where what is left is not enough for texts.
STAND_IN = "noisy-count"
EARLIER = 5
MOST_CHOICES = 50
#: What a default of this many tokens becomes where a model's context is too short for the defaults.
_SHARE_OF_CONTEXT = 4
_ASSUMED_TEMPLATE_TOKENS = 64


@dataclass(frozen=True)
class Start:
    """The values a form begins with, and a sentence on where they come from. `is_fresh`: defaults
    alone; `is_hopeless`: what is left is not enough for any values; `wanted`: the goal that it is
    not enough for, where the form is another one's.
    """

    values: Mapping[str, str]
    told: str = ""
    is_fresh: bool = False
    is_hopeless: bool = False
    wanted: str = ""


def read(actor: Actor, dataset: str, address: Mapping[str, str]) -> Start:
    """Return the form that the address asks for: `reuse` or `like` a job, or a `goal`."""
    if address.get("reuse"):
        return _reuse(actor, dataset, address["reuse"])
    if address.get("like"):
        return _like(actor, dataset, address["like"], address.get("largest") == "true")
    wanted = address.get("mechanism", "")
    if wanted in mechanisms.runnable():
        return begin(actor, dataset, wanted, address)
    own = any(name.startswith(PREFIX) for name in address)
    goal = address.get("goal", "texts")
    start = None if own else proposed(actor, dataset, goal)
    start = start or begin(actor, dataset, DEFAULT_MECHANISM, address)
    if not start.is_hopeless:
        return start
    other = begin(actor, dataset, STAND_IN, address)
    return start if other.is_hopeless else replace(other, told=start.told, wanted=goal)


def begin(actor: Actor, dataset: str, named: str, given: Mapping[str, str]) -> Start:
    """Return the defaults of a mechanism that runs here, with what is `given` of its own fields."""
    mechanism = mechanisms.get(named)
    fields = [PREFIX + field for field in mechanism.fields]
    own = {name: given[name] for name in fields if name in given}
    start = None if own else proposed(actor, dataset, mechanism.goal, mechanism)
    # one that needs a sweep of the model begins with defaults where there is none
    if start is not None and start.is_hopeless and mechanism.id != PLANNED[mechanism.goal][-1]:
        start = None
    if start is not None:
        return start
    start = _fitting(actor, dataset, mechanism, {**_begins(mechanism), **own})
    return replace(start, is_fresh=not own)  # what a link asks for is not made smaller


def _begins(mechanism: Mechanism[Any]) -> dict[str, str]:
    begins = schema_forms.typed(mechanism.begins, mechanism.schema)
    return {"mechanism": mechanism.id, **begins}


def proposed(
    actor: Actor, dataset: str, goal: str, only: Mechanism[Any] | None = None
) -> Start | None:
    """Return the proposal for a goal, by the mechanism of the best outlook or by `only`, or why
    nothing would be enough; None where nothing is proposed.
    """
    planned = PLANNED.get(goal, ())
    if not planned or (only is not None and only.id not in planned):
        return None
    if datasets.dataset(engine(), dataset, actor).public_size is None:
        return None
    named = None if only is None else only.id
    found = proposals.proposal_for(dataset, goal, actor, mechanism=named)
    told = found.outlook.sentence
    share = {"share": f"{100 * found.share:.0f}"} if found.share else {}
    mechanism = mechanisms.get(found.mechanism or named or DEFAULT_MECHANISM)
    values = {**_begins(mechanism), **share}
    if found.mechanism is None:
        return Start(values, told, is_hopeless=True)
    model = {} if found.model is None else {"model": found.model}
    stated = schema_forms.typed(found.parameters, mechanism.schema)
    told = "This is a proposal: change what you like."
    if mechanism.goal != goal:  # what has to run before it
        told = " ".join((*found.notes, found.outlook.sentence))
    return Start({**values, **stated, **model}, told)


def advised(goal: str, offered: Sequence[Mechanism[Any]]) -> Mechanism[Any] | None:
    """Return the first of the mechanisms for a goal, in the order of menus; None where none is."""
    return next((mechanism for mechanism in offered if mechanism.goal == goal), None)


def runnable(dataset: Mapping[str, Any]) -> list[Mechanism[Any]]:
    """Return the mechanisms that run here and that the dataset's policy admits."""
    admitted = dataset["policy"]["mechanisms"]
    return [each for each in mechanisms.runnable().values() if not admitted or each.id in admitted]


def _like(actor: Actor, dataset: str, named: str, largest: bool) -> Start:
    job = job_queries.job(engine(), read_id(named), actor).document()
    if job["dataset"] != dataset:
        raise NotFound("job", named[:80])
    # of a rehearsal: the job itself
    mechanism = mechanisms.get(mechanisms.get(job["mechanism"]).admitted_as)
    values = _of_job(mechanism, {**job, "parameters": rehearsal.rehearsed(job["parameters"])})
    values |= {"project": job["project"] or ""}  # what this one is for, its analyst says anew
    message = f"Filled from {job['name']}."
    refusal = job["refusal"] or {}
    if largest and refusal.get("largest") is not None:
        size = refusal["size_field"]
        values |= sized(mechanism, size, refusal["largest"])
        largest_one = "is the largest that fitted when it was refused."
        message += f" {size.replace('_', ' ').capitalize()} {largest_one}"
    return Start(values, message)


def sized(mechanism: Mechanism[Any], size: str, value: int | float) -> dict[str, str]:
    """Return the texts of a form with a field at this value, and its partner blank."""
    partners = [{one: other, other: one}.get(size) for one, other in mechanism.parameters.either]
    blank = {PREFIX + partner: "" for partner in partners if partner is not None}
    return blank | {PREFIX + size: str(value) if isinstance(value, int) else repr(value)}


def _of_job(mechanism: Mechanism[Any], job: Mapping[str, Any]) -> dict[str, str]:
    texts = schema_forms.typed(job["parameters"], mechanism.schema)
    return {"mechanism": mechanism.id, "model": job["model"] or "", **texts}


def _reuse(actor: Actor, dataset: str, named: str) -> Start:
    """Return a request that reads a job's release, with that job's values if visible."""
    job_id = read_id(named)
    rows = artifacts.listing(engine(), actor, job=job_id, dataset=dataset, limit=1)
    if not rows or "from_job" not in mechanisms.get(rows[0]["mechanism"]).fields:
        raise NotFound("job with artifacts that can be read again", named[:80])
    mechanism = mechanisms.get(rows[0]["mechanism"])
    values = {"mechanism": mechanism.id, "model": rows[0]["model"] or ""}
    # somebody else's, shared: its artifacts may be used, its request is not shown
    with suppress(NotFound):
        values = _of_job(mechanism, job_queries.job(engine(), job_id, actor).document())
    values[PREFIX + "from_job"] = str(job_id)
    for pair in mechanism.parameters.either:  # of what is not released again nothing is asked
        values |= {PREFIX + artifact: "" for artifact in pair}
    return Start(values, "Reads what an earlier job released: it is paid for, so this is free.")


# --- defaults that a model can run --------------------------------------------------------------


def _fitting(
    actor: Actor, dataset: str, mechanism: Mechanism[Any], values: dict[str, str]
) -> Start:
    """Return defaults that the dataset and the first model offered can serve."""
    document = datasets.dataset(engine(), dataset, actor).document()
    changes = _of_dataset(mechanism, document)
    model = next(iter(_models(actor, document["policy"])), None) if mechanism.uses_model else None
    if model is not None:
        changes |= _changes(mechanism, model["facts"])
        values["model"] = model["name"]
    stated = {name: value for name, value in changes.items() if PREFIX + name not in values}
    listed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in stated.items())
    what = f"the dataset and the model {model['name']}" if model else "the dataset"
    message = f"Defaults were made to fit {what}: {listed}." if stated else ""
    own = {PREFIX + name: text for name, text in stated.items()}
    return Start({**values, **own}, message, is_fresh=True)


def _of_dataset(mechanism: Mechanism[Any], dataset: Mapping[str, Any]) -> dict[str, str]:
    """Return the records a label that there are, and a tenth of the allowance as ε."""
    changes: dict[str, str] = {}
    defaults = mechanism.parameters.model_fields
    if "samples_per_label" in defaults and dataset["public_size"]:
        most = dataset["public_size"] // max(1, len(dataset["labels"]))
        if 1 <= most < defaults["samples_per_label"].default:
            changes["samples_per_label"] = str(most)
    unset = "epsilon" in defaults and defaults["epsilon"].default is None
    if unset and dataset["account"] is not None:
        changes["epsilon"] = f"{float(dataset['account']['epsilon']) / 10:.3g}"
        if mechanism.id == "aug-pe" and dataset["public_size"]:
            public = {"public_size": dataset["public_size"], "labels": tuple(dataset["labels"])}
            terms = Terms(Neighbours(dataset["neighbours"]), **public)
            shape = evolution_shape(terms, float(changes["epsilon"]))
            changes |= {name: str(value) for name, value in shape.items()}
    return changes


def _changes(mechanism: Mechanism[Any], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return defaults that differ for a model of this context and depth."""
    changes: dict[str, str] = {}
    layers, context = facts.get("layers"), facts.get("context_tokens")
    if layers and "layers" in mechanism.fields:
        last = int(str(mechanism.parameters.model_fields["layers"].default).rsplit("-", 1)[-1])
        if last >= layers:
            changes["layers"] = f"{layers // 2}-{min(layers // 2 + 1, layers - 1)}"
    defaults = mechanism.parameters.model_construct()
    if context and mechanism.context_tokens(defaults, _ASSUMED_TEMPLATE_TOKENS) > context:
        share = max(1, context // _SHARE_OF_CONTEXT)
        for name in ("record_tokens", "max_text_tokens", "max_tokens"):
            if name in mechanism.fields:
                changes[name] = str(min(getattr(defaults, name) or share, share))
    return changes


#: The kinds of registered models that a field of each kind may name.
KINDS = {"model": ("language",), "embedding": ("embedding",), "writer": ("language", "endpoint")}


def _models(actor: Actor, policy: Mapping[str, Any], kind: str = "model") -> list[dict[str, Any]]:
    """Return models that serve as `kind`, the largest first, that the dataset's policy admits."""
    return documents(model_queries.serving(engine(), actor, policy["models"], KINDS[kind]))


# --- what the fields may name -------------------------------------------------------------------


@dataclass(frozen=True)
class Offered:
    """The choices of a form: models, earlier jobs, and options by the name of a parameter."""

    models: list[dict[str, Any]]
    earlier: list[dict[str, Any]]
    options: Mapping[str, list[schema_forms.Option]]
    embeddings: Sequence[str] = ()
    counts: Sequence[schema_forms.Option] = ()

    def choice(self, field: schema_forms.Input, form: Form) -> schema_forms.Input:
        """Return the input, as a choice where it names a registered thing."""
        options, value = self.options.get(field.name), form.value(field.name, field.default)
        return field if options is None else schema_forms.with_choices(field, options, value)


def offered(actor: Actor, dataset: Mapping[str, Any], mechanism: Mechanism[Any]) -> Offered:
    """Return registered things and jobs that a request on `dataset` may name."""
    policy, kinds = dataset["policy"], given(mechanism.resources, mechanism)
    named: dict[str, list[schema_forms.Option]] = {
        kind: [(model["name"], model["name"]) for model in _models(actor, policy, kind)]
        for kind in set(kinds.values()) - {"corpus"}
    }
    if "corpus" in kinds.values():
        named["corpus"] = [
            (corpus["name"], f"{corpus['name']} ({corpus['declaration']})")
            for corpus in corpora.listing(engine(), actor)
            if corpus["state"] == "ready"
        ]
    options = {PREFIX + name: named[kind] for name, kind in kinds.items()}
    for field, kind in given(mechanism.sources, mechanism).items():
        options[PREFIX + field] = _releasing(actor, dataset["name"], kind)
    if "from_job" in mechanism.fields:
        options[PREFIX + "from_job"] = _sources(actor, dataset["name"], mechanism)
    if "label" in mechanism.fields:
        options[PREFIX + "label"] = [(label, label) for label in dataset["labels"]]
    mine = job_queries.Wanted(dataset=dataset["name"], analyst=actor.name)
    earlier = documents(job_queries.jobs(engine(), actor, mine, limit=EARLIER))
    embeddings = [model["name"] for model in _models(actor, policy, "embedding")]
    counts: list[schema_forms.Option] = []
    if "label_counts" in mechanism.fields:
        published = proposals.published_counts(actor, dataset["name"])
        counts = [(proposals.in_lines(each), job) for each, job in published]
    return Offered(_models(actor, policy), earlier, options, embeddings, counts)


def given(names: Callable[[Any], Mapping[str, str]], mechanism: Mechanism[Any]) -> dict[str, str]:
    """Return what `names` says of each field of a mechanism whose fields are all given."""
    everything: Any = SimpleNamespace(**dict.fromkeys(mechanism.fields, "given"))
    return dict(names(everything))


def _releasing(actor: Actor, dataset: str, kind: str) -> list[schema_forms.Option]:
    """Return jobs that released an artifact of a kind: the dataset's, and public ones of any."""
    rows = artifacts.listing(engine(), actor, limit=4 * MOST_CHOICES)
    of_kind = [row for row in rows if row["kind"] == kind]
    public = {row["mechanism"] for row in of_kind if mechanisms.get(row["mechanism"]).public}
    ours = [row for row in of_kind if row["dataset"] == dataset or row["mechanism"] in public]
    return _named(actor, ours)


def _named(actor: Actor, rows: Sequence[Mapping[str, Any]]) -> list[schema_forms.Option]:
    """Return the jobs of these artifacts by name; of somebody else's, by what paid for them."""
    paid = "{} on {}, entry {}"
    nouns = {row["mechanism"]: mechanisms.get(row["mechanism"]).noun for row in rows}
    jobs = {r["job"]: paid.format(nouns[r["mechanism"]], r["dataset"], r["entry"]) for r in rows}
    chosen = dict(list(jobs.items())[:MOST_CHOICES])
    return list((chosen | job_queries.names(engine(), actor, chosen)).items())


def _sources(actor: Actor, dataset: str, mechanism: Mechanism[Any]) -> list[schema_forms.Option]:
    """Return jobs whose published texts, or whose artifacts, the mechanism reads."""
    if mechanism.reads_output:
        wanted = job_queries.Wanted(dataset=dataset, state="succeeded")
        jobs = job_queries.jobs(engine(), actor, wanted, limit=MOST_CHOICES)
        writing = [job for job in jobs if not mechanisms.get(job.mechanism).reads_output]
        return [(job.id, job.name) for job in writing]
    rows = artifacts.listing(engine(), actor, dataset=dataset, limit=4 * MOST_CHOICES)
    return _named(actor, [row for row in rows if row["mechanism"] == mechanism.id])
