"""A LOSS charges all that is left in each currency; nothing is admitted or summed up after it."""

import json
from dataclasses import replace

import pytest

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.accounts import Accounts, ExPostAccount, new_secret_account
from accountant.core.ledger.books import Books
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.losses import Rest, charged, loss_body
from accountant.core.ledger.statements import History, statements
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from tests.ledger_exports import Ledger, export, fewer, two

HEADS = [{"log": "exchequer.example/log", "entries": 9, "leaf": "a" * 64}]


def ledger(settled: bool = True) -> Ledger:
    """A ledger with one job, which has ended or not."""
    made = Ledger()
    made.register()
    made.policy()
    made.register(version=1)
    made.allow(people=two())
    event = made.reserve("early", tokens_per_batch=40, batches_per_label=1)
    if settled:
        made.commit("early", fewer(event))
    return made


def lose(made: Ledger, **changed: object) -> Ledger:
    people = two() | {name: changed.pop(name) for name in two() if name in changed}
    body = loss_body(people, made.replay.books.accounts, HEADS, None)
    made.add("LOSS", None, {**body, **changed}, "tom")
    return made


def test_nothing_is_left_and_a_larger_allowance_leaves_the_difference():
    made = lose(ledger())
    account = made.replay.books.account
    assert all(each.left.main == each.left.delta == 0 for each in account.filters)
    before = [each.limit for each in account.filters]
    made.allow("12", people=two())
    for each, limit in zip(made.replay.books.account.filters, before, strict=True):
        assert each.left == each.limit - limit
    found = verify_lines(export(made.lines))
    (told,) = found.unproved
    assert "on the word of sam and tom" in told
    assert json.loads(export(made.lines)[0])["balances"]["losses"] == 1


def test_what_one_job_of_the_service_asked_is_refused_after_it():
    made = lose(ledger())
    with pytest.raises(VerificationFailed, match="no filter holds"):
        made.reserve("late", tokens_per_batch=1, batches_per_label=1)


def test_a_reservation_that_is_live_may_have_run():
    with pytest.raises(VerificationFailed, match="a reservation is live"):
        lose(ledger(settled=False))


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"signed": []}, "no list of some"),
        ({"signed": [{**HEADS[0], "entries": 0}]}, "a number from 1"),
        ({"signed": [{**HEADS[0], "entries": True}]}, "a number from 1"),
        ({"signed": [{**HEADS[0], "leaf": "b"}]}, "hash of 'leaf'"),
        ({"lost": {"first": 9, "last": 7, "hash": "c" * 64}}, "before the first"),
        ({"lost": {"first": 9, "last": 9, "hash": "c"}}, "hash of 'last'"),
        ({"confirmed_by": "sam"}, "one person"),
        ({"confirmed_by": "Sam"}, "no name of an account|one person"),
        ({"costs": {}}, "all that is left"),
        ({"secret": "1"}, "all that is left"),
    ],
)
def test_a_forged_loss_does_not_verify(changed, problem, public):
    made = lose(ledger())
    made.lines[-1].body |= changed
    if "confirmed_by" in changed:
        if public:
            return  # names are hidden
        made.lines[-1].actor = str(changed["confirmed_by"])
    with pytest.raises(VerificationFailed, match=problem):
        verify_lines(export(made.lines, public))


def test_ex_post_caps_that_are_left_are_charged_and_private():
    made = lose(ledger())
    made.lines[-1].body["ex_post"] = "1"
    with pytest.raises(VerificationFailed, match="ex-post caps"):
        verify_lines(export(made.lines))


def test_all_three_currencies_are_charged():
    terms = SecretTerms(prior=1e-4, bound=1e-2, records=1, rate=1.0, without="redacted")
    for kind in SecretKind:
        before = Accounts(
            ledger().replay.books.account,
            ExPostAccount(limit=9, spent=2),
            new_secret_account(terms, kind, "add-remove"),
        )
        after = charged(before, loss_body(two(), before, HEADS, None))
        assert Rest.of(after).ex_post == Rest.of(after).secret == 0
        assert (after.ex_post.spent, after.secret.spent) == (9, before.secret.limit)
        assert not after.secret.admits(1)
        assert not after.secret.admits(0) or kind is SecretKind.MANY


def test_no_statement_claims_a_total():
    lost = History(losses=2, jobs=3, ex_post_jobs=1, largest_epsilon=10**9)
    terms = SecretTerms(prior=1e-4, bound=1e-2, records=1, rate=1.0, without="redacted")
    accounts = Accounts(
        ledger().replay.books.account,
        secret=new_secret_account(terms, SecretKind.MANY, "add-remove"),
    )
    for said in statements(accounts, lost, "add-remove", "record"):
        assert said.text.startswith("No ")
        assert "lost 2 times" in said.text
        assert not said.unqualified
    nothing_ran = statements(Accounts(), lost._replace(jobs=0), "add-remove", "record")
    assert nothing_ran[0].text.startswith("No (ε, δ) statement holds")


def test_a_statement_about_secrets_begins_before_anything_was_lost():
    made = lose(ledger()).replay.books
    assert isinstance(made, Books)
    terms = SecretTerms(prior=1e-4, bound=1e-2, records=1, rate=1.0, without="redacted")
    stated = new_secret_account(terms, SecretKind.MANY, "add-remove")
    body = {"reason": "late", "secret": {"terms": terms.to_json(), "kind": "many"}}
    body["secret"] |= {"neighbours": "add-remove", "order": str(stated.order)}
    body["secret"]["limit"] = str(stated.limit)
    fresh = replace(made, history=made.history._replace(jobs=0))
    with pytest.raises(VerificationFailed, match="jobs that ran before"):
        fresh.apply(EntryKind.ALLOW, None, body)
