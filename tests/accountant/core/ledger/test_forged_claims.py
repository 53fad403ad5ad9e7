"""Exports that lie about what they are: what they hide, who people are, when they were signed, how
they read.

All hashes and sums of these are right. `test_forged_exports.py` has the acts that no rule allows.
"""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger import commitments
from accountant.core.ledger.books import Books
from accountant.core.ledger.checkpoints import (
    Checkpoint,
    introduction,
    public_key,
    read_checkpoint,
    sign,
)
from accountant.core.ledger.export_formats import (
    header,
    json_header,
    json_row,
    summary,
    verify_lines,
)
from accountant.core.ledger.hash_chain import canonical
from accountant.core.ledger.lineage import of_artifacts
from accountant.core.ledger.verifier import Verifier
from accountant.core.privacy.events import FREE
from tests.accountant.core.ledger.test_forged_exports import line
from tests.ledger_exports import Ledger, export, honest, name_of, two

SEED, OTHER_SEED = b"s" * 32, b"o" * 32
SIGNED = datetime(2026, 4, 1, tzinfo=UTC)


def signed_lines(
    ledger: Ledger | None = None, *, public: bool = False, at: datetime = SIGNED, seed: bytes = SEED
) -> list[str]:
    """An export with a checkpoint of its last entry."""
    ledger = ledger or honest()
    lines = export(ledger.lines, public)
    claimed = json.loads(lines[0])
    books, live = ledger.replay.books, ledger.replay.live_count
    keys = [introduction(public_key(seed), datetime(2026, 1, 1, tzinfo=UTC), None)]
    balances = summary(books, live, public=True)
    made = sign(claimed["dataset"], claimed["entries"], claimed["head"], balances, at, seed, keys)
    return [json_header({**claimed, "checkpoint": made}), *lines[1:]]


def restated(lines: list[str], **changed: Any) -> list[str]:
    """An export with other claims in its header; None: without that one."""
    claimed = {**json.loads(lines[0]), **changed}
    return [
        json_header({name: value for name, value in claimed.items() if value is not None}),
        *lines[1:],
    ]


def documents_of(lines: list[str]) -> list[tuple[str, dict[str, Any]]]:
    found = [json.loads(each) for each in lines[1:]]
    return [(each.pop("hash"), each) for each in found]


def rewritten(lines: list[str], change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    """An export with each document changed, under the hashes that it had."""
    rows = [
        json_row(hashed, canonical(change(each)).decode()) for hashed, each in documents_of(lines)
    ]
    return [lines[0], *rows]


# --- the true exports stand ---------------------------------------------------------------------


@pytest.mark.parametrize("public", [False, True])
def test_the_true_export_stands(public):
    found = verify_lines(signed_lines(public=public), pinned=public_key(SEED))
    assert (found.entries, found.public, found.unproved) == (24, public, ())
    assert [each.seq for each in found.checkpoints] == [24]


# --- what is hidden -----------------------------------------------------------------------------


def hide(document: dict[str, Any], *path: str) -> dict[str, Any]:
    """The document with the private value at a place hidden: its hash is the same."""
    changed = copy.deepcopy(document)
    holder: Any = changed
    for step in path[:-1]:
        holder = holder.get(step, {})
    if (
        isinstance(holder, dict)
        and isinstance(holder.get(path[-1]), dict)
        and "salt" in holder[path[-1]]
    ):
        holder[path[-1]] = {"sha256": commitments.commitment(holder[path[-1]])}
    return changed


HIDDEN = {place for places in commitments.places_by_kind().values() for place in places}


@pytest.mark.parametrize("place", sorted(HIDDEN), ids=".".join)
def test_a_full_export_hides_nothing(place):
    """Who acted, who approved, and what an ex-post job really cost, are not checked where they are
    hidden.
    """
    lines = signed_lines(with_ex_post())
    changed = rewritten(lines, lambda document: hide(document, *place))
    if changed == lines:
        pytest.skip("no entry of it has a value there")
    with pytest.raises(VerificationFailed, match="the export does not say that it is public"):
        verify_lines(changed)


def with_ex_post() -> Ledger:
    """An honest ledger with a job that has an ex-post part, and the texts of a prompt."""
    ledger = honest()
    ledger.allow(None, two(), ex_post={"limit": "20", "settlement": "planned"})
    ledger.policy(two(), solo=True)
    event = ledger.reserve("capped", aggregation="median", ex_post_cap=5, tokens_per_batch=4)
    ledger.commit("capped", event, others={"ex_post": {"cap": "5000000000"}})
    return ledger


def test_a_public_export_shows_no_private_value():
    """Else one export could show who approved some jobs and hide it of others."""
    full, public = export(honest().lines), export(honest().lines, public=True)
    for number in range(1, len(full)):
        with pytest.raises(VerificationFailed, match="says that it is public"):
            verify_lines([*public[:number], full[number], *public[number + 1 :]])


def test_an_export_is_what_its_header_says():
    with pytest.raises(VerificationFailed, match="does not say that it is public"):
        verify_lines(restated(export(honest().lines, public=True), public=None))
    with pytest.raises(VerificationFailed, match="says that it is public"):
        verify_lines(restated(export(honest().lines), public=True))


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(
    ("kind", "job", "path"),
    [
        ("REVERSAL", None, ("ex_post",)),
        ("RESERVE", "early", ("parameters", "tokens_per_batch")),
        ("RESERVE", "early", ("model", "sha256")),
        ("COMMIT", "early", ("output_sha256",)),
        ("REGISTER", None, ("terms",)),
        ("ALLOW", None, ("epsilon",)),
        ("POLICY", None, ("policy", "mechanisms")),
    ],
)
def test_nothing_is_hidden_that_is_not_private(kind, job, path, public):
    ledger = honest()
    holder: Any = line(ledger, kind, job).body
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = {"sha256": "a" * 64}
    with pytest.raises(VerificationFailed):
        verify_lines(export(ledger.lines, public))


# --- balances of an export for publication ------------------------------------------------------


def test_a_public_export_states_no_sum_of_ex_post_costs():
    lines = export(with_ex_post().lines, public=True)
    balances = json.loads(lines[0])["balances"]
    assert balances["ex_post"] == ["20000000000", None, "0"]
    assert verify_lines(lines).entries == 28
    for stated in ("0", "5000000000", 5000000000):
        changed = {**balances, "ex_post": ["20000000000", stated, "0"]}
        with pytest.raises(VerificationFailed, match="states balances"):
            verify_lines(restated(lines, balances=changed))


# --- people who are one -------------------------------------------------------------------------

ALIKE = [
    "Sam",
    "SAM",
    "sam\u200b",
    "\u2060sam",
    "ѕam",
    "sаm",
    "ｓam",
    "s\u00e4m",
    "sam ",
    " sam",
    "sarn",
    "5am\u0301",
]


@pytest.mark.parametrize("name", ALIKE)
def test_two_people_are_not_one_by_another_spelling(name):
    for kind in ("ALLOW", "REVERSAL", "POLICY"):
        ledger = honest()
        found = line(ledger, kind, nth=2 if kind == "POLICY" else 0)
        found.body |= {"proposed_by": "sam", "confirmed_by": name}
        found.actor = name
        with pytest.raises(VerificationFailed) as told:
            verify_lines(export(ledger.lines))
        assert "one person proposed and confirmed it" in str(told.value) or "no name" in str(
            told.value
        )


@pytest.mark.parametrize("name", ["Ana", "ana\u200b", "\u0430na", "ana\u00a0", "an\u0430"])
def test_nobody_approves_their_own_job_by_another_spelling(name):
    ledger = honest()
    line(ledger, "RESERVE", "early").body["approval"]["by"] = name
    with pytest.raises(VerificationFailed, match="no name of an account"):
        verify_lines(export(ledger.lines))


def test_nobody_approves_their_own_job_by_a_name_that_looks_alike():
    for analyst, approver in (("ana1", "anal"), ("m0", "rno"), ("lo", "10")):
        ledger = honest()
        found = line(ledger, "RESERVE", "early")
        found.actor, found.body["approval"]["by"] = analyst, approver
        with pytest.raises(VerificationFailed, match="approved a job of their own"):
            verify_lines(export(ledger.lines))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, "") for kind in ("ALLOW", "RESERVE", "POLICY", "REVERSAL", "COMMIT", "REGISTER")]
    + [("RESERVE", each) for each in (" ", "Ana", "ana\n", None, 5, ["ana"], {"sha256": "a" * 64})],
)
def test_who_acts_has_a_name(kind, name):
    """An empty name would pass for one that is hidden, and a policy's list of analysts for no
    list.
    """
    ledger = honest()
    line(ledger, kind).actor = name
    with pytest.raises(VerificationFailed):
        verify_lines(export(ledger.lines))


def test_a_policy_names_accounts():
    for field in ("analysts", "stewards", "auditors"):
        ledger = honest()
        line(ledger, "POLICY", nth=2).body["policy"][field] = ["ana", "Sam"]
        with pytest.raises(VerificationFailed, match="'Sam', which is no name of an account"):
            verify_lines(export(ledger.lines))


# --- fields that no reader knows, and values in another form ------------------------------------

Place = tuple[str, str | None, tuple[str, ...]]
OBJECTS: list[Place] = [
    ("REGISTER", None, ()),
    ("REGISTER", None, ("terms",)),
    ("POLICY", None, ()),
    ("POLICY", None, ("policy",)),
    ("ALLOW", None, ()),
    ("ALLOW", None, ("filters", "0")),
    ("ALLOW", None, ("filters", "0", "limit")),
    ("RESERVE", "early", ()),
    ("RESERVE", "early", ("approval",)),
    ("RESERVE", "early", ("terms",)),
    ("RESERVE", "early", ("parameters",)),
    ("RESERVE", "early", ("model",)),
    ("RESERVE", "early", ("source",)),
    ("RESERVE", "early", ("event",)),
    ("RESERVE", "early", ("costs",)),
    ("RESERVE", "early", ("costs", "renyi")),
    ("RESERVE", "judged", ("source", "public", "corpus")),
    ("COMMIT", "vectors", ()),
    ("COMMIT", "vectors", ("artifacts", "0")),
    ("COMMIT", "early", ("event",)),
    ("COMMIT", "early", ("costs", "gaussian")),
    ("VOID", None, ()),
    ("REVERSAL", None, ()),
    ("REVERSAL", None, ("costs", "renyi")),
    ("REVERSAL", None, ("reserve",)),
]


def at(body: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = body
    for step in path:
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


@pytest.mark.parametrize(("kind", "job", "path"), OBJECTS)
def test_no_object_holds_a_field_that_no_reader_knows(kind, job, path):
    ledger = honest()
    at(line(ledger, kind, job).body, path)["note"] = "approved by everybody"
    if path == ("reserve",):
        return  # it quotes an entry of the chain, whatever it says: `written` quotes what that is
    with pytest.raises(VerificationFailed) as told:
        verify_lines(export(ledger.lines))
    assert told.value.seq is not None


FORMS: list[tuple[str, str | None, tuple[str, ...], Any]] = [
    ("REGISTER", None, ("terms", "max_records_per_unit"), True),
    ("REGISTER", None, ("terms", "unit_spelling"), "refuse"),
    ("POLICY", None, ("policy", "solo"), "yes"),
    ("POLICY", None, ("policy", "two_people"), 1),
    ("POLICY", None, ("policy", "approval_days"), "3"),
    ("POLICY", None, ("policy", "auto_approve_epsilon"), 0),
    ("ALLOW", None, ("epsilon",), "10.0"),
    ("ALLOW", None, ("epsilon",), 10),
    ("ALLOW", None, ("delta",), "1e-6"),
    ("ALLOW", None, ("filters", "0", "share"), "5/10"),
    ("ALLOW", None, ("filters", "3", "edition"), True),
    ("RESERVE", "early", ("terms", "max_records_per_unit"), True),
    ("RESERVE", "early", ("terms", "groups"), []),
    ("RESERVE", "early", ("terms", "delta"), "0.000001"),
    ("RESERVE", "early", ("parameters", "tokens_per_batch"), "40"),
    ("RESERVE", "early", ("parameters", "batches_per_label"), True),
    ("RESERVE", "early", ("parameters", "stop"), ""),
    ("RESERVE", "early", ("source", "version"), "1"),
    ("RESERVE", "early", ("source", "version"), True),
    ("RESERVE", "early", ("model", "sha256"), None),
    ("RESERVE", "early", ("ex_post",), None),
    ("RESERVE", "early", ("approval", "signature"), None),
    ("COMMIT", "early", ("attempt",), "1"),
    ("COMMIT", "early", ("read",), 1),
    ("COMMIT", "early", ("output_sha256",), "A" * 64),
    ("COMMIT", "count", ("costs", "basic", "main"), 0),
    ("COMMIT", "vectors", ("artifacts", "0", "sha256"), "A" * 64),
    ("COMMIT", "early", ("artifacts",), []),
    ("COMMIT", "early", ("secret",), {"release": None, "cost": "0"}),
    ("COMMIT", "early", ("ex_post",), {"cap": "0"}),
    ("VOID", None, ("read",), 0),
    ("VOID", None, ("reason",), 5),
    ("REVERSAL", None, ("counts",), 1),
    ("REVERSAL", None, ("cap",), 0),
]


@pytest.mark.parametrize(("kind", "job", "path", "value"), FORMS)
def test_each_value_has_one_form(kind, job, path, value):
    ledger = honest()
    *above, name = path
    holder = at(line(ledger, kind, job).body, tuple(above))
    holder[name] = value
    with pytest.raises(VerificationFailed) as told:
        verify_lines(export(ledger.lines))
    assert told.value.seq is not None


def test_an_artifact_has_one_hash():
    ledger = honest()
    first = line(ledger, "COMMIT", "vectors").body["artifacts"][0]
    line(ledger, "COMMIT", "vectors").body["artifacts"] = [{**first, "sha256": "b" * 64}, first]
    with pytest.raises(VerificationFailed, match="two artifacts of it have one name"):
        verify_lines(export(ledger.lines))


@pytest.mark.parametrize("reserved", [{}, {"renyi": {"main": "5", "delta": "0"}}])
def test_a_free_job_states_its_costs(reserved):
    """They are no part of the balances where nothing was reserved."""
    ledger = honest()
    line(ledger, "COMMIT", "reuse").body["costs"] = reserved
    with pytest.raises(VerificationFailed, match="costs"):
        verify_lines(export(ledger.lines))
    ledger = vocabulary()  # which has no allowance
    line(ledger, "COMMIT", "public").body["costs"] = {"renyi": {"main": "5", "delta": "0"}}
    with pytest.raises(VerificationFailed, match="costs"):
        verify_lines(export(ledger.lines, dataset="novels"))


CLAIMS: list[tuple[str, Any]] = [
    ("version", True),
    ("version", 2),
    ("format", "exchequer-ledger "),
    ("entries", "24"),
    ("entries", 23),
    ("head", "0" * 64),
    ("dataset", "LETTERS"),
    ("dataset", 5),
    ("public", False),
    ("public", "no"),
    ("public", 1),
    ("note", "approved by everybody"),
    ("log_proof", None.__class__),
    ("log_proof", {"seq": 25, "proof": ""}),
    ("log_proof", {"seq": True, "proof": ""}),
    ("log_proof", {"seq": 1, "proof": "", "note": ""}),
    ("log_proof", "yes"),
]


@pytest.mark.parametrize(("name", "value"), CLAIMS)
def test_a_header_claims_what_the_entries_give(name, value):
    value = [] if value is type(None) else value
    with pytest.raises(VerificationFailed):
        verify_lines(restated(export(honest().lines), **{name: value}))


@pytest.mark.parametrize("name", ["format", "version", "dataset", "entries", "head", "balances"])
def test_a_header_claims_all_of_it(name):
    with pytest.raises(VerificationFailed):
        verify_lines(restated(export(honest().lines), **{name: None}))


def test_a_ledger_has_entries():
    """Else nothing spent would be all that an export says."""
    empty = header("letters", 0, "0" * 64, Books(), 0)
    with pytest.raises(VerificationFailed, match="it has no entries"):
        verify_lines([json_header(empty)])


@pytest.mark.parametrize("name", ["Letters", "lett\u0435rs", "letters ", "", "letters\x1b[2K"])
def test_a_dataset_has_a_name_of_one(name):
    with pytest.raises(VerificationFailed, match="its dataset is"):
        verify_lines(export(honest().lines, dataset=name))


def test_balances_have_one_form():
    lines = export(honest().lines)
    for name, value in (("live_reservations", True), ("live_reservations", "2"), ("note", "")):
        balances = {**json.loads(lines[0])["balances"], name: value}
        with pytest.raises(VerificationFailed, match="states balances"):
            verify_lines(restated(lines, balances=balances))
    balances = json.loads(lines[0])["balances"]
    balances["filters"][0]["closed"] = False
    with pytest.raises(VerificationFailed, match="states balances"):
        verify_lines(restated(lines, balances=balances))


# --- the text -----------------------------------------------------------------------------------

TEXTS: dict[str, Callable[[str], str]] = {
    "a name twice, the first another's": lambda text: text.replace('{"', '{"dataset":"other","', 1),
    "a name twice, alike": lambda text: text.replace(
        '"dataset":"letters"', '"dataset":"letters","dataset":"letters"'
    ),
    "blank": lambda text: text.replace(",", ", ", 1),
    "blank before": lambda text: " " + text,
    "tab behind": lambda text: text.replace("\n", "\t\n"),
    "escape": lambda text: text.replace("letters", "\\u006cetters"),
    "solidus": lambda text: text.replace('"letters"', '"letters\\/"'),
    "mark": lambda text: "\ufeff" + text,
    "real": lambda text: text.replace('"version":', '"version":0.0e1,"version":'),
    "order": lambda text: (
        '{"version":' + text[-3] + "," + text[1:].replace(f',"version":{text[-3]}', "")
    ),
}


@pytest.mark.parametrize("change", TEXTS)
@pytest.mark.parametrize("row", [0, 1, 5, 24])
def test_a_text_is_canonical(change, row):
    lines = signed_lines()
    changed = [*lines[:row], TEXTS[change](lines[row]), *lines[row + 1 :]]
    assert changed != lines
    with pytest.raises(VerificationFailed):
        verify_lines(changed)


# --- checkpoints --------------------------------------------------------------------------------


def test_a_checkpoint_is_not_older_than_what_it_covers():
    """A key that was stolen later could else sign a history with the date of before."""
    for moment in (datetime(2026, 3, 1, 9, 22, 59, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)):
        with pytest.raises(VerificationFailed, match="covers entry 24, which was written at 2026"):
            verify_lines(signed_lines(at=moment))
    verify_lines(signed_lines(at=datetime(2026, 3, 1, 9, 23, tzinfo=UTC)))


def test_nor_is_one_that_somebody_kept():
    claimed = signed_lines(at=datetime(2026, 2, 1, tzinfo=UTC))[0]
    kept = read_checkpoint(json.loads(claimed)["checkpoint"])
    with pytest.raises(VerificationFailed, match="covers entry 24"):
        verify_lines(export(honest().lines), [kept])


def kept_at(seq: int) -> Checkpoint:
    """A checkpoint of the honest ledger at an entry."""
    checked = Verifier()
    for hashed, document in documents_of(export(honest().lines))[:seq]:
        checked.add(document, hashed)
    found = checked.result()
    balances = summary(found.books, found.live, public=True)
    keys = [introduction(public_key(SEED), datetime(2026, 1, 1, tzinfo=UTC), None)]
    made = sign(found.dataset, seq, found.head, balances, SIGNED, SEED, keys)
    return read_checkpoint(made, public_key(SEED))


def test_a_key_that_one_knows_has_signed_all_of_it():
    lines = export(honest().lines)
    with pytest.raises(VerificationFailed, match="no checkpoint signed with the key that you know"):
        verify_lines(lines, pinned=public_key(SEED))
    with pytest.raises(VerificationFailed, match="no checkpoint signed with the key that you know"):
        verify_lines(lines, [kept_at(5)], public_key(SEED))
    with pytest.raises(VerificationFailed, match="does not follow from key"):
        verify_lines(signed_lines(seed=OTHER_SEED), pinned=public_key(SEED))
    verify_lines(lines, [kept_at(5), kept_at(24)], public_key(SEED))
    verify_lines(lines, [kept_at(5)])


def test_a_checkpoint_is_of_this_export():
    lines, signed = export(honest().lines), json.loads(signed_lines()[0])["checkpoint"]
    ledger = honest()
    line(ledger, "VOID").body["reason"] = "another reason"
    for other in (export(ledger.lines), lines[:-1]):
        with pytest.raises(VerificationFailed):
            verify_lines(restated(other, checkpoint=signed), pinned=public_key(SEED))


@pytest.mark.parametrize(
    "change",
    [
        lambda made: {**made, "note": ""},
        lambda made: {**made, "signature": made["signature"].upper()},
        lambda made: {**made, "signature": " " + made["signature"]},
        lambda made: {**made, "checkpoint": {**made["checkpoint"], "version": True}},
        lambda made: {**made, "checkpoint": {**made["checkpoint"], "seq": 23}},
        lambda made: {**made, "keys": [{**made["keys"][0], "note": ""}]},
        lambda made: {**made, "keys": [{**made["keys"][0], "signature": "0" * 128}]},
        lambda made: {**made, "keys": []},
    ],
)
def test_a_checkpoint_has_one_form(change):
    lines = signed_lines()
    made = json.loads(lines[0])["checkpoint"]
    with pytest.raises(VerificationFailed):
        verify_lines(restated(lines, checkpoint=change(made)))


# --- artifacts of other datasets ----------------------------------------------------------------

TERMS = {"terms": "e" * 64}


def reading(job: str, **elsewhere: str) -> dict[str, Any]:
    return {"version": 1, "sources": {"vocabulary": {**of_artifacts(job, TERMS), **elsewhere}}}


def reader(**elsewhere: str) -> list[str]:
    """A ledger with a job that reads artifacts of another dataset."""
    ledger = honest()
    job = name_of("public")
    sizes = {
        "vocabulary_size": 4,
        "sequences_per_label": 2,
        "sequence_length": 3,
        "output": "phrases",
    }
    ledger.reserve("reader", "dp-kps", source=reading(job, **elsewhere), vocabulary=job, **sizes)
    return export(ledger.lines)


def test_the_artifacts_of_this_dataset_are_not_those_of_another():
    with pytest.raises(VerificationFailed, match="names its own dataset as another"):
        verify_lines(reader(dataset="letters", mechanism="vocabulary"))


def test_what_is_private_there_is_not_called_public():
    with pytest.raises(VerificationFailed, match="whose mechanism is not public"):
        verify_lines(reader(dataset="novels", mechanism="epsvec"))


def test_that_it_is_public_takes_the_ledger_of_the_other_dataset():
    found = verify_lines(reader(dataset="novels", mechanism="vocabulary"))
    assert found.unproved == (
        "not provable: that what entry 25 reads of 'novels' is public: verify an export of that "
        "dataset "
        "together with this one",
    )


def vocabularies(terms: str = TERMS["terms"]) -> list[str]:
    """An export of the other dataset's ledger, in which a public job released these terms."""
    return export(vocabulary(terms).lines, dataset="novels")


def vocabulary(terms: str = TERMS["terms"]) -> Ledger:
    ledger = Ledger()
    ledger.register()
    ledger.policy()
    public = {"public": {"corpus": {"kind": "corpus", "name": "novels", "sha256": "d" * 64}}}
    ledger.reserve("public", "vocabulary", source=public, corpus="novels")
    released = [{"name": "terms", "kind": "term-list", "sha256": terms}]
    ledger.commit("public", FREE, read=False, artifacts=released)
    return ledger


# --- rules that were taken out ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["REGISTER", "POLICY"])
def test_rules_that_were_taken_out_are_missed(kind):
    ledger = honest()
    ledger.lines = [each for each in ledger.lines if each.kind != kind]
    with pytest.raises(VerificationFailed):
        verify_lines(export(ledger.lines))
