"""The fields of entries' bodies: those that each kind states, those that it may state, and no
others.

A field that no reader knows could say anything. A value in a second form could mean another thing
to another reader. So each body has the fields below, and each value in it the one form in which the
service writes it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from accountant.core import mechanisms
from accountant.core.errors import VerificationFailed
from accountant.core.ledger.accounts import Settlement, ex_post_json
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.commitments import TEXTS, is_hidden
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.policy import LATER, PEOPLE, PRIVATE, Policy
from accountant.core.ledger.reservations import by_value, read_event
from accountant.core.names import NAME
from accountant.core.privacy.events import to_json
from accountant.core.privacy.filters import granted
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretRelease
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal

Body = Mapping[str, Any]

_BY_TWO = ("proposed_by", "reason", "confirmed_by", "confirmation")
_SIGNED = ("signature", "confirmation_signature")

#: Fields of bodies by kind: those that each states, and those that some state.
_BODIES: Mapping[EntryKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    EntryKind.REGISTER: (("terms", "version"), ("data", "layout")),
    EntryKind.POLICY: (("policy",), (*_BY_TWO, *_SIGNED)),
    EntryKind.ALLOW: (
        ("reason",),
        ("epsilon", "delta", "filters", "ex_post", "secret", *_BY_TWO, *_SIGNED),
    ),
    EntryKind.RESERVE: (
        ("mechanism", "parameters", "terms", "model", "event", "costs", "approval", "source"),
        ("ex_post", "secret", "whole", "parts", "overdraft"),
    ),
    EntryKind.COMMIT: (
        ("event", "costs", "outcome", "attempt", "output_sha256", "read"),
        ("ex_post", "secret", "artifacts", "evidence"),
    ),
    EntryKind.VOID: (("outcome", "reason", "read"), ()),
    EntryKind.REVERSAL: (
        (
            *_BY_TWO,
            "event",
            "cap",
            "costs",
            "ex_post",
            "secret",
            "counts",
            "read",
            "reserve",
            "corrects",
        ),
        _SIGNED,
    ),
    EntryKind.LOSS: ((*_BY_TWO, "signed", "lost", "costs", "ex_post", "secret"), ()),
}
#: Of the REGISTER of a version: its files (workers.data.manifest), where they lie and how they are
#: read.
DATA = ("files", "bytes", "sha256", "list")
LAYOUT = ("uri", "text_template", "label_column", "group_column", "secret_column", "secrets")
_DP = ("epsilon", "delta", "filters")
#: Kinds that a person writes; a worker or the service may write the others.
_OF_PEOPLE = (
    EntryKind.POLICY,
    EntryKind.ALLOW,
    EntryKind.REVERSAL,
    EntryKind.RESERVE,
    EntryKind.LOSS,
)
_AGENT = re.compile(r"[!-~](?:[ -~]{0,298}[!-~])?")
_NAME = re.compile(NAME)
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Types of values that are the same in JSON wherever they are equal.
_PLAIN = (str, int, float, bool, type(None))


def check_fields(entry: Entry) -> None:
    """Raise VerificationFailed unless an entry has the fields of its kind, in the form they are
    written in.

    Values that a public export hides are passed over.
    """
    body = entry.body
    if not is_name(entry.dataset):
        raise VerificationFailed(f"its dataset is {entry.dataset!r:.80}, which is no name of one")
    _check_names(body, "body", *_BODIES[entry.kind])
    _check_people(entry)
    match entry.kind:
        case EntryKind.REGISTER if body["version"] is not None:
            _check_register(body)
        case EntryKind.POLICY:
            _check_policy(body["policy"])
        case EntryKind.ALLOW:
            _check_allow(body)
        case EntryKind.RESERVE:
            _check_reserve(body)
        case EntryKind.COMMIT:
            _check_commit(body)
        case EntryKind.REVERSAL if body["event"] is not None:
            _check_event(body["event"])
        case EntryKind.LOSS:
            _check_loss(body)


def check_same(stated: object, value: object, where: str) -> None:
    """Raise VerificationFailed unless two values are the same in JSON, where true is not 1."""
    if type(stated) is type(value) and type(value) in _PLAIN and stated == value:
        return  # as most values, which need no text
    if value_text(stated) != value_text(value):
        raise VerificationFailed(
            f"its {where} is {stated!r:.80}, which is written as {value!r:.80}"
        )


def _check_names(
    value: object, where: str, stated: Iterable[str], optional: Iterable[str] = ()
) -> None:
    """Check that an object has the fields `stated`, perhaps optional ones, and no others."""
    if not isinstance(value, dict):
        raise VerificationFailed(f"its {where} is no object")
    if value.keys() == set(stated):
        return  # as most objects
    lacking, unknown = set(stated) - set(value), set(value) - {*stated, *optional}
    if lacking:
        raise VerificationFailed(f"its {where} lacks {min(lacking)!r}")
    if unknown:
        raise VerificationFailed(
            f"its {where} has a field {min(unknown)!r:.80}, which no reader knows"
        )
    for name in set(value) - set(stated):
        if value[name] is None:
            raise VerificationFailed(f"its {where} states nothing as {name!r}")


# --- people -------------------------------------------------------------------------------------


def _check_people(entry: Entry) -> None:
    """Check that who acts has a name that an account can have, and that what people say is text."""
    body, approval = entry.body, entry.body.get("approval")
    people = {name: body[name] for name in ("proposed_by", "confirmed_by") if name in body}
    texts = {name: body[name] for name in ("reason", "confirmation") if name in body}
    if entry.kind is EntryKind.RESERVE and approval is not None and not is_hidden(approval):
        _check_names(
            approval, "approval", ("by", "reason"), ("signature", "departed", "instead_of")
        )
        people["approver"] = approval["by"]
        texts |= {
            name: approval[name]
            for name in ("reason", "departed", "instead_of")
            if name in approval
        }
    if entry.kind is EntryKind.RESERVE and "overdraft" in body:
        _check_names(body["overdraft"], "overdraft", ("reason",), ("signature",))
        texts["overdraft"] = body["overdraft"]["reason"]
    if entry.actor and entry.kind in _OF_PEOPLE:
        people["actor"] = entry.actor
    elif entry.actor and _AGENT.fullmatch(entry.actor) is None:
        raise VerificationFailed(f"its actor is {entry.actor!r:.80}")
    for name, value in people.items():
        if not is_hidden(value) and not is_name(value):
            raise VerificationFailed(f"its {name} is {value!r:.80}, which is no name of an account")
    for name, value in texts.items():
        if not is_hidden(value) and not isinstance(value, str):
            raise VerificationFailed(f"its {name} is no text")


def is_name(value: object) -> bool:
    """Return True for a name that an account or a dataset can have."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _check_policy(stated: object) -> None:
    if not isinstance(stated, dict):
        raise VerificationFailed("its policy is no object")
    before = {name for fields in LATER if not stated.keys() & set(fields) for name in fields}
    _check_names(stated, "policy", set(Policy.model_fields) - before)
    shown = {
        name: () if name in PRIVATE and is_hidden(value) else value
        for name, value in stated.items()
    }
    policy = Policy.model_validate(shown)
    for name, value in policy.model_dump(mode="json", exclude=before).items():
        if shown[name] != ():
            check_same(stated[name], value, name)
    for name in PEOPLE:
        for person in getattr(policy, name):
            if not is_name(person):
                raise VerificationFailed(
                    f"its {name} name {person!r:.80}, which is no name of an account"
                )


def _check_register(body: Body) -> None:
    """Check that the REGISTER of a version states its files, and how they are read, or neither."""
    if not {"data", "layout"} & body.keys():
        return  # the data never comes here
    for name, fields in (("data", DATA), ("layout", LAYOUT)):
        if not is_hidden(body.get(name)):
            _check_names(body.get(name), name, fields)


def _check_allow(body: Body) -> None:
    """Check the amounts of an ALLOW; books.py checks its limits."""
    dp = [name for name in _DP if name in body]
    if dp and dp != list(_DP):
        raise VerificationFailed(f"its body states {dp[0]}, and not all of {', '.join(_DP)}")
    if dp:
        epsilon, delta = granted(body["epsilon"], body["delta"])
        check_same(body["epsilon"], to_decimal(epsilon, EPSILON_UNITS), "epsilon")
        check_same(body["delta"], to_decimal(delta, DELTA_UNITS), "delta")
    if "ex_post" in body:
        ex_post = body["ex_post"]
        check_same(
            ex_post, ex_post_json(ex_post["limit"], Settlement(ex_post["settlement"])), "ex_post"
        )


def _check_loss(body: Body) -> None:
    """Check the form of the signed heads and of the lost entries that a LOSS states."""
    heads, lost = body["signed"], body["lost"]
    if not isinstance(heads, list) or not heads:
        raise VerificationFailed("its signed heads are no list of some")
    for head in heads:
        _check_names(head, "signed head", ("log", "entries", "leaf"))
        _check_texts({"log": head["log"]})
        _check_number(head["entries"], "number of signed entries")
        if head["leaf"] is not None:
            _check_hashes({"leaf": head["leaf"]})
    if lost is None:
        return
    _check_names(lost, "lost", ("first", "last", "hash"))
    _check_number(lost["first"], "first lost entry")
    _check_number(lost["last"], "last lost entry")
    if lost["first"] > lost["last"]:
        raise VerificationFailed("its last lost entry is before the first")
    _check_hashes({"last": lost["hash"]})


def _check_number(value: object, what: str) -> None:
    if type(value) is not int or value < 1:
        raise VerificationFailed(f"its {what} is {value!r:.40}: a number from 1")


# --- jobs ---------------------------------------------------------------------------------------


def _check_reserve(body: Body) -> None:
    if "parts" in body and (type(body["parts"]) is not int or body["parts"] < 2):
        raise VerificationFailed(
            f"its parts are {body['parts']!r:.40}: a number from 2, or nothing"
        )
    _check_event(body["event"])
    _check_terms(body["terms"])
    _check_source(body["source"])
    _check_parameters(body["mechanism"], body["parameters"], body["source"])
    if body["model"] is not None:
        _check_names(body["model"], "model", ("name", "sha256"))
        _check_texts(body["model"])
        _check_hashes({body["model"]["name"]: body["model"]["sha256"]})
    _check_parts(body)


def _check_parts(body: Body) -> None:
    """Check the form of the ex-post and secret parts of a RESERVE or COMMIT."""
    if "ex_post" in body:
        _check_names(body["ex_post"], "ex_post", ("cap",))
    if "secret" in body:
        _check_names(body["secret"], "secret", ("release", "cost"))
        release = body["secret"]["release"]
        if release is not None:
            check_same(release, SecretRelease.from_json(release).to_json(), "secret release")


@by_value
def _check_event(stated: object) -> None:
    check_same(stated, to_json(read_event(stated)), "event")


@by_value
def _check_terms(stated: Any) -> None:
    check_same(stated, Terms.from_json(stated).to_json(), "terms")


def _check_parameters(mechanism_id: str, stated: object, source: Any) -> None:
    """Check that parameters are those that the mechanism records: all that it uses, each in its own
    form.

    A job reads beside records what its parameters name, and nothing else (lineage.check_named).
    """
    if not isinstance(stated, dict):
        raise VerificationFailed("its parameters are no object")
    hidden = tuple(name for name in TEXTS if is_hidden(stated.get(name)))
    shown = {name: value for name, value in stated.items() if name not in hidden}
    recorded = _as_recorded(mechanism_id, shown, hidden)
    for where, fields in (("public", recorded.resources), ("sources", recorded.sources)):
        if fields or where in source:
            _check_names(source.get(where), f"source, {where},", fields)


class _Recorded(NamedTuple):
    """Parameters as a mechanism records them, and those that name public things and jobs."""

    values: dict[str, Any]
    resources: tuple[str, ...]
    sources: Mapping[str, str]


def kinds_read(body: Body) -> Mapping[str, str]:
    """Return the kind of artifact that a RESERVE's job reads of other jobs, by field."""
    shown = {name: value for name, value in body["parameters"].items() if name not in TEXTS}
    return _recorded(body["mechanism"], shown).sources


@by_value
def _as_recorded(mechanism_id: str, stated: Body, hidden: tuple[str, ...]) -> _Recorded:
    """Check the form of parameters."""
    recorded = _recorded(mechanism_id, stated)
    _check_names(stated, "parameters", recorded.values.keys() - set(hidden), recorded.values)
    for name, value in stated.items():
        check_same(value, recorded.values[name], name)
    return recorded


@by_value
def _recorded(mechanism_id: str, shown: Body) -> _Recorded:
    mechanism = mechanisms.get(mechanism_id)
    try:
        parameters = mechanism.parameters.model_validate(shown)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise VerificationFailed(f"its parameters are not of {mechanism_id}: {where}") from None
    resources, sources = tuple(mechanism.resources(parameters)), mechanism.sources(parameters)
    return _Recorded(mechanism.recorded(parameters), resources, sources)


def _check_source(source: object) -> None:
    """Check the form of what a job reads; lineage.py checks that it may."""
    _check_names(
        source, "source", (), ("version", "job", "artifacts", "output", "sources", "public")
    )
    assert isinstance(source, dict)
    for field, read in source.get("sources", {}).items():
        elsewhere = ("dataset", "mechanism") if "dataset" in read else ()
        _check_names(read, f"source of {field}", ("job", "artifacts", *elsewhere))
        _check_hashes(read["artifacts"])
        _check_texts({name: read[name] for name in ("job", *elsewhere)})
    for field, read in source.get("public", {}).items():
        endpoint = ("model", "version") if read.get("kind") == "endpoint" else ()
        _check_release(read, f"source of {field}", endpoint)
    if "artifacts" in source:
        _check_hashes(source["artifacts"])
    _check_texts({name: source[name] for name in ("job", "output") if name in source})


def _check_release(value: object, where: str, more: tuple[str, ...] = ()) -> None:
    """Check the name, kind and hash of an artifact or a public thing."""
    _check_names(value, where, ("kind", "name", "sha256", *more))
    assert isinstance(value, dict)
    _check_texts(value)
    _check_hashes({value["name"]: value["sha256"]})


def _check_texts(values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise VerificationFailed(f"its {name} is {value!r:.80}, which is no text")


def _check_hashes(artifacts: object) -> None:
    """Check that these are SHA-256 by name."""
    if not isinstance(artifacts, dict):
        raise VerificationFailed("its artifacts are no hashes by name")
    for name, sha256 in artifacts.items():
        if not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
            raise VerificationFailed(f"its hash of {name!r:.80} is {sha256!r:.80}")


def _check_commit(body: Body) -> None:
    _check_event(body["event"])
    _check_parts(body)
    if "evidence" in body:
        _check_names(body["evidence"], "evidence", (), ("history", "output", "signature"))
        if "output" in body["evidence"]:
            _check_hashes({"output": body["evidence"]["output"]})
    if "artifacts" not in body:
        return
    released = body["artifacts"]
    if not isinstance(released, list) or not released:
        raise VerificationFailed("its artifacts are no list of some")
    for artifact in released:
        _check_release(artifact, "artifact")
    if len({artifact["name"] for artifact in released}) < len(released):
        raise VerificationFailed("two artifacts of it have one name")
