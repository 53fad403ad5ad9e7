"""A dataset's allowance and policy: what stands, what a change would do, and the change."""

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from flask import Blueprint, Response, jsonify, render_template
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, FieldProblem, InvalidRequest, NotPermitted
from accountant.core.ledger.policy import Policy, read_signer, weakened
from accountant.core.ledger.signatures import fingerprint
from accountant.core.privacy.units import exact
from accountant.queries import datasets, decisions, effects
from accountant.transactions import allowances, owners, policies
from web import passkeys
from web.api.datasets import NewAllowance
from web.api.etags import etag
from web.api.parsing import read
from web.auth import current_actor, needs_role
from web.confirmation import needs_fresh
from web.context import engine
from web.errors import with_prefix, without_prefix
from web.meaning import ABOUT_EX_POST, meaning
from web.views import presets
from web.views.forms import BLANK, Form, done, sent, shown_again, typed

pages = Blueprint("policies", __name__)

_FIGURES = ("epsilon", "delta", "ex_post", "ex_post_settlement", "order")


def policy_of(values: Mapping[str, str]) -> dict[str, Any]:
    """Return a form's policy as the API takes it."""
    return typed(Policy, values, "policy.")


# --- pages --------------------------------------------------------------------------------------


@pages.get("/datasets/<name>/policy")
@needs_role("steward")
def show(name: str, *, reviewed: str | None = None, **forms: Form) -> str:
    """Allowance and policy, each with its form."""
    dataset = _dataset(name)
    allowance, policy = forms.get("allowance", BLANK), forms.get("policy", BLANK)
    changes, now = _allowance_change(name, allowance.values), dataset["account"]
    if not allowance.values and now is not None:  # what stands means something before one types
        terms = (dataset["neighbours"], dataset["unit"])
        changes["meaning"] = meaning(now["epsilon"], now["delta"], *terms)
    return render_template(
        "policy.html",
        dataset=dataset,
        allowance_form=allowance,
        policy_form=policy,
        reviewed=reviewed,
        policy_version=_version(dataset["policy"]),
        ex_post_text=ABOUT_EX_POST,
        **changes,
        **_policy_change(dataset, policy.values),
    )


@pages.post("/datasets/<name>/allowance/effect")
@needs_role("steward")
def allowance_effect(name: str) -> str:
    """The changes by the allowance that the form says now, as a part of its page."""
    return render_template("_allowance_effect.html", **_allowance_change(name, sent()))


@pages.post("/datasets/<name>/policy/effect")
@needs_role("steward")
def policy_effect(name: str) -> str:
    """The changes by the policy that the form says now, as a part of its page."""
    dataset = _dataset(name)
    return render_template("_policy_effect.html", **_policy_change(dataset, sent()))


@pages.post("/datasets/<name>/<any(allowance, policy):part>/review")
@needs_role("steward")
def review(name: str, part: str) -> BaseResponse:
    """The page again with what the form, or a preset, would change; nothing is changed."""
    forms: dict[str, Any] = {part: Form(presets.applied(sent()))}
    return Response(show(name, reviewed=part, **forms))


@pages.post("/datasets/<name>/allowance")
@needs_role("steward")
@needs_fresh
@shown_again(show, "allowance", (InvalidRequest, Conflict, NotPermitted), "policies.show")
def allow(name: str) -> BaseResponse:
    """Set the allowance, for a reason."""
    body, actor = read(NewAllowance, allowance_fields(sent())), current_actor()
    allowance, signature = body.allowance(), passkeys.given(actor)
    entry = allowances.allow(engine(), name, allowance, actor, signature=signature)
    message = f"The allowance of {name} is now ε {body.epsilon}, δ {body.delta}."
    if entry is not None:
        message = "A raise needs two people here: another steward confirms it in the inbox."
    return done(message, "datasets.show", name=name)


@pages.post("/datasets/<name>/policy")
@needs_role("steward")
@needs_fresh
@shown_again(show, "policy", (InvalidRequest, Conflict, NotPermitted), "policies.show")
def set_policy(name: str) -> BaseResponse:
    """Replace the policy. What the form does not hold stays as it is."""
    form, actor = sent(), current_actor()

    def check(now: dict[str, Any]) -> None:
        if form.get("policy_version") != _version(now):
            raise Conflict(
                "the policy was changed after this page was made, and nothing of yours is written: "
                "read beside the form what it would change now, and send it again"
            )

    try:
        policy = datasets.dataset(engine(), name, actor)["policy"]
        wanted = read(Policy, policy | policy_of(form))
        entry = policies.set_policy(engine(), name, wanted, actor, check, passkeys.given(actor))
    except InvalidRequest as error:
        raise with_prefix(without_prefix(error, "policy."), "policy.") from None
    message = f"The policy of {name} is changed. Jobs decided before keep their decision."
    if entry is not None:
        weaker = decisions.show(engine(), entry, actor).weakens
        named = ", ".join(field.replace("_", " ") for field in weaker)
        message = "Nothing is changed yet. Another steward confirms in the inbox what weakens "
        message += f"{named}."
    return done(message, "datasets.show", name=name)


def _version(policy: Mapping[str, Any]) -> str:
    """Return the version of the policy that the form was filled from, as the API's ETag."""
    return etag(jsonify(policy).get_data())


def _dataset(name: str) -> dict[str, Any]:
    """Return a dataset for a steward of it. Raises NotPermitted for those of others."""
    dataset = datasets.dataset(engine(), name, current_actor())
    owners.require(current_actor(), dataset.policy, "steward")
    return dataset.document()


# --- what would change --------------------------------------------------------------------------


def allowance_fields(values: Mapping[str, str], *parts: str) -> dict[str, Any]:
    """Return a form's allowance as the API takes it, with `parts` that have fields of their own."""
    filled = {name: text.strip() for name, text in values.items() if text.strip()}
    stated: dict[str, Any] = {name: filled.get(name) for name in _FIGURES}
    for part in parts:
        inside = {name: text for name, text in filled.items() if name.startswith(f"{part}.")}
        stated[part] = {name[len(part) + 1 :]: text for name, text in inside.items()} or None
    if stated["ex_post"] is None:  # there is no cap that it could be about
        stated["ex_post_settlement"] = None
    return stated | {"reason": filled.get("reason", "")}


def _allowance_change(name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the limits before and after, whether it is a raise, and what the figures mean."""
    found: dict[str, Any] = {"change": None, "meaning": None, "errors": ()}
    if not values:
        return found
    try:
        stated = allowance_fields(values)
        body = read(NewAllowance, stated | {"reason": stated["reason"] or "-"})
        change = effects.preview(engine(), name, body.allowance(), current_actor()).document()
        if body.epsilon is not None:
            terms = (change["neighbours"], change["unit"])
            found["meaning"] = meaning(body.epsilon, body.delta, *terms)
    except InvalidRequest as error:
        return {**found, "errors": error.problems}
    except Conflict as error:
        return {**found, "errors": [FieldProblem("allowance", str(error))]}
    pairs = [(row["before"], row["after"]) for row in change["filters"] if row["before"]]
    lowers = any(Decimal(after) < Decimal(before) for before, after in pairs)
    return {**found, "change": change, "lowers": lowers}


#: What a change of a field does; of the others, their labels say it. `{}`: see policy_changes.
_CONSEQUENCES = {
    "auto_approve_epsilon": "(ε, δ) jobs of up to ε {after} by themselves need no steward "
    "(now: {before}).",
    "solo": "A steward {may} approve a job of their own.",
    "share_artifacts": "Whoever may ask {sees} the artifacts of everybody's jobs.",
    "departed_analysts": "A steward {may} approve a request whose analyst left while it waited.",
    "two_people": "A raise {needs} a second steward, and {ends} weakening the policy.",
    "secret_jobs": "Jobs that protect declared secrets and no records {may_be} admitted; after one "
    "of them no (ε, δ) statement holds.",
    "approval_days": "Requests submitted from now on expire after {after} days (now: {before}).",
    "analyst_epsilon": "One person's jobs may add up to ε {after} (now: {before}), used ones too.",
    "project_epsilon": "One project's jobs may add up to ε {after} (now: {before}), used ones too.",
    "shared_epsilon": "All jobs from the first month on may add up to ε {after} (now: {before}).",
    "release_start": "The release begins with the month {after} (now: {before}).",
    "release_months": "It is released over {after} months (now: {before}).",
    "shares": "Shares of each month: {after} (now: {before}).",
    "share_by_project": "Shares belong to {sharers}.",
    "wait_for_release": "A job that fits a later release {waits}.",
    "charge_each_attempt": "A job whose machine is lost after it began to read {charged}.",
    "time_limit_seconds": "An attempt ends itself after {after} seconds (now: {before}).",
    "results_every_seconds": "Jobs end at multiples of {after} seconds (now: {before}).",
    "stated_charges_epsilon": "Charges as people state them add up to ε {after} (now: {before}).",
    "signed_charges_epsilon": "Charges that a runner signs add up to ε {after} (now: {before}).",
}


def _policy_change(dataset: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Return what the policy in a form changes, what weakens it, and if two must agree."""
    if not values:
        return {"changes": None, "weaker": [], "two_people": False}
    before, after = dataset["policy"], policy_of(values)
    try:
        weak = weakened(Policy.model_validate(before), Policy.model_validate(after))
    except (InvalidRequest, ValueError):
        weak = ()  # it can't be right: that is told when it is sent
    return {
        "changes": policy_changes(before, after, without=weak),
        "weaker": policy_changes(before, after, only=weak),
        "two_people": before["two_people"] and bool(weak),
    }


def policy_changes(
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    only: Collection[str] = tuple(presets.LABELS),
    without: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each field that would change."""
    changes = []
    for name, label in presets.LABELS.items():
        old, new = (before or {}).get(name), (after or {}).get(name)
        if name not in only or name in without or _same(old, new):
            continue
        words = {
            "may": "may" if new else "may no longer",
            "sees": "sees" if new else "no longer sees",
            "needs": "needs" if new else "no longer needs",
            "ends": "so does" if new else "nor does",
            "may_be": "may be" if new else "are no longer",
            "sharers": "projects" if new else "analysts",
            "waits": "waits for it" if new else "is refused",
            "charged": "is charged and ends" if new else "runs again, free of charge",
        }
        plain = f"{label}: {{after}} (now: {{before}})."
        template = plain if new is None else _CONSEQUENCES.get(name, plain)
        shown = {"before": _shown(name, old), "after": _shown(name, new)}
        changes.append(template.format(**shown, **words))
    return changes


def _same(old: object, new: object) -> bool:
    if isinstance(old, str) and isinstance(new, str):
        try:
            return exact(old) == exact(new)
        except InvalidRequest:
            return old == new
    return old == new or (not old and not new)


def _shown(name: str, value: object) -> str:
    if name == "signers" and isinstance(value, (list, tuple)):
        try:
            keys = [read_signer(str(item)) for item in value]
        except InvalidRequest:
            return "what names no passkey"
        return ", ".join(f"{key.person} ({fingerprint(key.key)[:16]})" for key in keys) or "none"
    if name in ("signed", "shares"):
        return ", ".join(map(str, value or ())) or "none"  # type: ignore[call-overload]
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "all"
    return str(value) if value is not None else "none" if name.endswith("epsilon") else "no limit"
