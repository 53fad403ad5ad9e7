"""Acts signed with passkeys: ledgers whose signatures are right verify, and every forgery is
refused by name.

Hashes and sums of all forgeries are made anew, as the owner of a database can.
"""

from collections.abc import Callable
from typing import Any

import pytest

from accountant.core.errors import InvalidRequest, VerificationFailed
from accountant.core.ledger import signatures
from accountant.core.ledger.entry_bodies import allow_body
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.policy import Policy, read_signer, weakened
from accountant.core.ledger.signatures import decoded, encoded
from tests.ledger_exports import Ledger, Line, export, name_of, two
from tests.passkeys import HOST, SAM, SIGNING, TOM, Passkey, acts_of, sign, signed_ledger

Forgery = Callable[[Ledger], None]
FORGERIES: dict[str, tuple[str, Forgery]] = {}


def forgery(problem: str) -> Callable[[Forgery], Forgery]:
    def keep(change: Forgery) -> Forgery:
        FORGERIES[change.__name__] = (problem, change)
        return change

    return keep


@pytest.fixture(scope="module")
def honest() -> list[str]:
    return export(signed_ledger().lines)


def place(ledger: Ledger, kind: str, job: str | None = None, nth: int = 0) -> int:
    wanted = None if job is None else name_of(job)
    found = [
        i
        for i, each in enumerate(ledger.lines)
        if each.kind == kind and job in (None, each.job and job)
    ]
    found = [i for i in found if wanted is None or ledger.lines[i].job == wanted]
    return found[nth]


def line(ledger: Ledger, *which: Any, **more: Any) -> Line:
    return ledger.lines[place(ledger, *which, **more)]


def approval(ledger: Ledger, job: str) -> dict[str, Any]:
    found: dict[str, Any] = line(ledger, "RESERVE", job).body["approval"]
    return found


NOT_SIGNED = "asks that who does this signs it .{}., and it is not signed"
ANOTHER_ACT = "what was signed is not what the entry says"
ANOTHER_KEY = "signed with a key that the policy in force does not name for"


# --- signatures that are not there
# ------------------------------------------------------------------


@forgery(NOT_SIGNED.format("approve"))
def the_signature_of_an_approval_is_taken_out(ledger: Ledger) -> None:
    del approval(ledger, "second")["signature"]


@forgery("nobody approved it, and the policy asks for a signed approval")
def a_job_needs_no_approval(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").body["approval"] = None


@forgery(NOT_SIGNED.format("allow"))
def a_raise_is_signed_by_its_proposer_alone(ledger: Ledger) -> None:
    del line(ledger, "ALLOW", nth=2).body["confirmation_signature"]


@forgery(NOT_SIGNED.format("allow"))
def a_raise_is_signed_by_its_confirmer_alone(ledger: Ledger) -> None:
    del line(ledger, "ALLOW", nth=2).body["signature"]


@forgery(NOT_SIGNED.format("policy"))
def a_policy_that_asks_for_no_signatures_is_not_signed(ledger: Ledger) -> None:
    ledger.policy(two(), analysts=["ana", "sam"], solo=True)


@forgery(NOT_SIGNED.format("policy"))
def a_stricter_policy_is_not_signed(ledger: Ledger) -> None:
    del line(ledger, "POLICY", nth=2).body["signature"]


@forgery(NOT_SIGNED.format("correct"))
def a_correction_is_signed_by_one(ledger: Ledger) -> None:
    del line(ledger, "REVERSAL").body["confirmation_signature"]


@forgery(ANOTHER_ACT)
def a_correction_is_of_another_amount(ledger: Ledger) -> None:
    body = line(ledger, "REVERSAL").body
    body |= {"cap": "7000000000", "ex_post": "7000000000"}


@forgery("its signature is not authenticator_data")
def a_signature_lacks_its_nonce(ledger: Ledger) -> None:
    del approval(ledger, "second")["signature"]["nonce"]


# --- other acts
# -------------------------------------------------------------------------------------


@forgery(ANOTHER_ACT)
def a_signature_of_another_job_is_used_again(ledger: Ledger) -> None:
    approval(ledger, "second")["signature"] = dict(approval(ledger, "first")["signature"])


@forgery(ANOTHER_ACT)
def the_reason_of_an_approval_is_another(ledger: Ledger) -> None:
    approval(ledger, "second")["reason"] = "no objection"


@forgery(ANOTHER_ACT)
def the_job_that_was_approved_is_another_analysts(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").actor = "sam"


@forgery(ANOTHER_ACT)
def a_prompt_is_another_than_was_approved(ledger: Ledger) -> None:
    line(ledger, "RESERVE", "live").body["parameters"]["stop"] = "."


@forgery(ANOTHER_ACT)
def more_is_allowed_than_was_signed(ledger: Ledger) -> None:
    body = line(ledger, "ALLOW", nth=2).body
    body |= allow_body(ledger.replay.books.account, "14", "1e-6", body["reason"])


@forgery(ANOTHER_ACT)
def an_allowance_is_signed_under_the_one_before(ledger: Ledger) -> None:
    """What a signed ALLOW once granted is granted again, after it was lowered."""
    earlier = line(ledger, "ALLOW", nth=2)
    ledger.allow("9")
    sign(ledger.lines, len(ledger.lines) - 1)
    ledger.lines.append(Line("ALLOW", "sam", None, dict(earlier.body), ledger.lines[-1].at))


@forgery(ANOTHER_ACT)
def a_policy_that_stood_before_comes_again(ledger: Ledger) -> None:
    first = line(ledger, "POLICY", nth=2)
    ledger.lines.append(Line("POLICY", first.actor, None, dict(first.body), ledger.lines[-1].at))


@forgery(ANOTHER_ACT)
def an_approval_given_under_an_earlier_policy_is_used_now(ledger: Ledger) -> None:
    at = place(ledger, "RESERVE", "live")
    stricter = place(ledger, "POLICY", nth=2)
    early = [*ledger.lines[:stricter], ledger.lines[at]]
    sign(early, len(early) - 1)  # signed as if it were there


@forgery(ANOTHER_ACT)
def the_confirmation_is_of_another_proposal(ledger: Ledger) -> None:
    at = place(ledger, "ALLOW", nth=2)
    body = ledger.lines[at].body
    # the same act, signed again: another nonce
    body["signature"] = TOM.sign(acts_of(ledger.lines, at)[0])


# --- other keys
# -------------------------------------------------------------------------------------


@forgery(ANOTHER_KEY)
def another_steward_signs_in_sams_name(ledger: Ledger) -> None:
    at = place(ledger, "RESERVE", "live")
    approval(ledger, "live")["signature"] = TOM.sign(acts_of(ledger.lines, at)[0])


@forgery(ANOTHER_KEY)
def a_key_that_no_policy_names_signs(ledger: Ledger) -> None:
    at = place(ledger, "RESERVE", "live")
    approval(ledger, "live")["signature"] = Passkey("sam").sign(acts_of(ledger.lines, at)[0])


@forgery(ANOTHER_KEY)
def a_key_signs_that_the_policy_names_no_more(ledger: Ledger) -> None:
    new = Passkey("sam")
    signers = [str(new.signer), str(TOM.signer)]
    ledger.policy(two(), **{**SIGNING, "solo": True, "signers": signers})
    sign(ledger.lines, len(ledger.lines) - 1)
    ledger.reserve("late", tokens_per_batch=10, batches_per_label=1)
    sign(ledger.lines, len(ledger.lines) - 1)  # with the key of before


@forgery(ANOTHER_KEY)
def one_person_signs_for_both(ledger: Ledger) -> None:
    at = place(ledger, "ALLOW", nth=2)
    second = acts_of(ledger.lines, at)[1]
    ledger.lines[at].body["confirmation_signature"] = TOM.sign(second or {})


@forgery("its signature is not of the key that it names")
def a_signature_names_a_key_that_did_not_make_it(ledger: Ledger) -> None:
    signed = approval(ledger, "live")["signature"]
    at = place(ledger, "RESERVE", "live")
    signed |= Passkey("sam").sign(acts_of(ledger.lines, at)[0]) | {"key": signed["key"]}


# --- not by a person at a page of the service
# -------------------------------------------------------


def signed_so(ledger: Ledger, **how: Any) -> None:
    sign(ledger.lines, place(ledger, "RESERVE", "live"), **how)


@forgery("nobody was present when it was signed")
def nobody_was_there(ledger: Ledger) -> None:
    signed_so(ledger, flags=0x04)


@forgery("who signed it was not verified by the passkey")
def nobody_was_verified(ledger: Ledger) -> None:
    signed_so(ledger, flags=0x01)


@forgery("signed for another relying party")
def it_was_signed_for_another_service(ledger: Ledger) -> None:
    signed_so(ledger, host="elsewhere.example")


@forgery("signed at 'https://evil.example', and not at")
def it_was_signed_at_another_page(ledger: Ledger) -> None:
    signed_so(ledger, client={"origin": "https://evil.example"})


@forgery("and not at")
def it_was_signed_at_a_name_that_only_ends_alike(ledger: Ledger) -> None:
    signed_so(ledger, client={"origin": f"https://evil{HOST}"})


@forgery("and not at")
def it_was_signed_at_a_subdomain(ledger: Ledger) -> None:
    signed_so(ledger, client={"origin": f"https://guest.{HOST}"})


@forgery("and not at")
def it_was_signed_at_another_port(ledger: Ledger) -> None:
    signed_so(ledger, client={"origin": f"https://{HOST}:8443"})


@forgery("and not at")
def its_origin_has_a_path(ledger: Ledger) -> None:
    signed_so(ledger, client={"origin": f"https://{HOST}/"})


@forgery("and not at")
def it_was_signed_without_tls(ledger: Ledger) -> None:
    signed_so(ledger, client={"origin": f"http://{HOST}"})


@forgery("not made by a page of the service")
def it_is_a_registration(ledger: Ledger) -> None:
    signed_so(ledger, client={"type": "webauthn.create"})


@forgery("not made by a page of the service")
def a_frame_in_another_page_signed_it(ledger: Ledger) -> None:
    signed_so(ledger, client={"crossOrigin": True})


@forgery("its signature can't be read")
def its_client_data_has_two_origins(ledger: Ledger) -> None:
    """A parser that takes the first would see another page than one that takes the last."""
    at = place(ledger, "RESERVE", "live")
    act = acts_of(ledger.lines, at)[0]
    approval(ledger, "live")["signature"] = SAM.sign(
        act, text=('{"', '{"origin":"https://evil.example","')
    )


@forgery("its signature can't be read")
def its_client_data_is_no_json(ledger: Ledger) -> None:
    approval(ledger, "live")["signature"]["client_data"] = encoded(b"{")


@forgery("its signature is not of the key that it names")
def a_bit_of_the_flags_was_set_later(ledger: Ledger) -> None:
    signed_so(ledger, flags=0x01)
    signed = approval(ledger, "live")["signature"]
    data = bytearray(decoded(signed["authenticator_data"]))
    data[32] |= 0x04
    signed["authenticator_data"] = encoded(bytes(data))


# --------------------------------------------------------------------------------------------------


def test_a_signed_ledger_verifies_and_nothing_is_left_open(honest):
    assert verify_lines(honest).unproved == ()


def test_a_public_export_says_that_it_shows_no_signatures():
    """A commitment in place of a signature proves nothing, in a full export either."""
    ledger = signed_ledger()
    result = verify_lines(export(ledger.lines, public=True))
    assert result.unproved == (
        "not provable: whether people signed 10 entries, as the policy asks: the export does not "
        "show it",
    )
    shown = "".join(export(ledger.lines, public=True))
    assert SAM.signer.key not in shown
    assert signatures.fingerprint(SAM.signer.key) not in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_forged_signatures_are_refused(name):
    problem, change = FORGERIES[name]
    ledger = signed_ledger()
    change(ledger)
    with pytest.raises(VerificationFailed, match=problem) as told:
        verify_lines(export(ledger.lines))
    assert told.value.seq is not None


def test_signatures_that_nobody_asks_for_are_checked_all_the_same():
    ledger = Ledger()
    ledger.register()
    ledger.policy()
    ledger.register(version=1)
    ledger.allow(people=two())
    ledger.reserve("job", tokens_per_batch=10, batches_per_label=1)
    sign(ledger.lines, len(ledger.lines) - 1)
    with pytest.raises(VerificationFailed, match=ANOTHER_KEY):
        verify_lines(export(ledger.lines))


def test_a_signature_that_nobody_asks_for_is_over_its_own_act():
    ledger = Ledger()
    ledger.register()
    ledger.policy()
    ledger.policy(two(), **{**SIGNING, "signed": []})
    ledger.register(version=1)
    ledger.allow(people=two())
    for job in ("first", "second"):
        ledger.reserve(job, tokens_per_batch=10, batches_per_label=1)
        sign(ledger.lines, len(ledger.lines) - 1)
    verify_lines(export(ledger.lines))
    approval(ledger, "second")["signature"] = approval(ledger, "first")["signature"]
    with pytest.raises(VerificationFailed, match=ANOTHER_ACT):
        verify_lines(export(ledger.lines))


# --- the policy
# -------------------------------------------------------------------------------------


def test_other_signers_and_fewer_acts_are_weaker():
    before = Policy(**SIGNING)
    assert weakened(before, before.model_copy(update={"signers": before.signers[:1]})) == (
        "signers",
    )
    assert weakened(before, before.model_copy(update={"signed": ("policy",)})) == ("signed",)
    assert weakened(Policy(), Policy(signed=("policy",), signers=SIGNING["signers"])) == (
        "signers",
    )
    assert weakened(before, before) == ()


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"signed": ["dance"]}, "signed"),
        ({"signed": ["approve"]}, "signed"),
        ({"signers": []}, "signers"),
        ({"auto_approve_epsilon": "0.1"}, "auto_approve_epsilon"),
        ({"signers": ["sam"]}, "signers"),
        ({"signers": [SIGNING["signers"][0]], "two_people": True}, "signers"),
    ],
)
def test_a_policy_that_nobody_could_sign_is_refused_by_its_field(changed, field):
    with pytest.raises(InvalidRequest) as told:
        Policy(**{**SIGNING, **changed}).check("policy.")
    assert told.value.problems[0].field == f"policy.{field}"


def test_a_key_is_one_of_es256():
    assert read_signer(str(SAM.signer)) == SAM.signer
    with pytest.raises(InvalidRequest, match="ES256"):
        signatures.public_key("AAAA")
