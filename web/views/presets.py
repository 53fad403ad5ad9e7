"""The form of a policy: three presets for a purpose, and the fields in groups with their labels."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from accountant.core.ledger.policy import ACTS, Policy


class Preset(NamedTuple):
    """The fields of a policy that a purpose asks for, and what they mean in six sentences."""

    title: str
    fields: dict[str, Any]
    meaning: tuple[str, ...]


#: Where a preset says nothing else. People, models, mechanisms, caps and passkeys stay as they are.
_PLAIN: dict[str, Any] = {
    "auto_approve_epsilon": "0",
    "solo": False,
    "two_people": False,
    "approval_days": None,
    "charge_each_attempt": False,
    "signed": [],
}
PRESETS = {
    "pilot": Preset(
        "A pilot alone",
        _PLAIN | {"solo": True},
        (
            "You try things out by yourself.",
            "You may approve your own jobs, and the page of the dataset says so.",
            "Each job still waits until you say yes.",
            "You may raise the allowance alone.",
            "A job that waits does not expire.",
            "Take it for data that is made up or public, not for patients.",
        ),
    ),
    "team": Preset(
        "A team with a steward",
        _PLAIN | {"approval_days": 14},
        (
            "Analysts ask, and a steward decides.",
            "Nobody approves a job of their own.",
            "Each job needs a yes with a reason.",
            "One steward may raise the allowance alone.",
            "A job that nobody answers ends after 14 days, and costs nothing.",
            "No act needs a passkey.",
        ),
    ),
    "hospital": Preset(
        "A hospital: two people and passkeys",
        _PLAIN
        | {
            "two_people": True,
            "approval_days": 7,
            "charge_each_attempt": True,
            "signed": list(ACTS),
        },
        (
            "Two stewards guard the data.",
            "One asks for more or for weaker rules, and the other confirms it.",
            "Each yes is signed with a passkey, and the ledger keeps it.",
            "Choose below whose passkeys sign, for two people at least.",
            "A job that nobody answers ends after 7 days.",
            "A job whose machine fails while it reads is charged.",
        ),
    ),
}

#: The fields of a policy in their groups, each with its label.
GROUPS = {
    "Who may ask": {
        "analysts": "People who may ask",
        "mechanisms": "Mechanisms",
        "models": "Models",
        "share_artifacts": "Share what jobs released",
    },
    "Who decides": {
        "auto_approve_epsilon": "Approve without a steward up to",
        "stewards": "Stewards",
        "auditors": "Auditors",
        "two_people": "Two people",
        "solo": "Solo",
        "departed_analysts": "People who left",
    },
    "Limits": {
        "analyst_epsilon": "Cap per analyst",
        "project_epsilon": "Cap per project",
        "charge_each_attempt": "Charge each attempt",
        "secret_jobs": "Jobs about secrets",
    },
    "Fair use": {
        "shared_epsilon": "Shared ε",
        "release_start": "First month",
        "release_months": "Months of release",
        "shares": "Shares",
        "share_by_project": "Shares of projects",
        "wait_for_release": "Wait for a release",
    },
    "Other programs": {
        "stated_charges_epsilon": "Cap of charges as stated",
        "signed_charges_epsilon": "Cap of charges that runners sign",
        "runners": "Runners that sign",
    },
    "Signatures": {
        "signed": "Signed acts",
        "signers": "Whose passkeys sign",
    },
    "Timing": {
        "approval_days": "Days until a request expires",
        "time_limit_seconds": "Seconds of one attempt",
        "results_every_seconds": "Seconds between results",
    },
}

LABELS = {name: label for fields in GROUPS.values() for name, label in fields.items()}


def described(name: str) -> str:
    """Return what a field of a policy means, as the API and the documents say it."""
    return Policy.model_fields[name].description or ""


def is_switch(name: str) -> bool:
    """Return True if a field of a policy is on or off."""
    return Policy.model_fields[name].annotation is bool


def applied(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a form with those of the preset whose button was pressed."""
    preset = PRESETS.get(values.get("preset", ""))
    if preset is None:
        return dict(values)
    fields = {f"policy.{name}": value for name, value in preset.fields.items()}
    rest = {name: text for name, text in values.items() if name not in fields}
    # A box that is off is not sent, and a list has one item a line.
    return rest | {name: _text(value) for name, value in fields.items() if value}


def _text(value: object) -> str:
    return "\n".join(value) if isinstance(value, list) else "1" if value is True else str(value)
