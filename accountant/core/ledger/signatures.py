"""Acts that people sign with passkeys, and whether the signatures in an entry are theirs.

    RESERVE    approval.signature                    who approved it: the act `approve`
               overdraft.signature                   who declared it, if it is one
    ALLOW      signature, confirmation_signature     who set the allowance, and who confirmed it:
                                                     `allow`
    REVERSAL   the same                              who proposed and who confirmed it: `correct`
    POLICY     the same                              who set the policy, and who confirmed it:
                                                     `policy`

An act is a document made of its entry alone (`first_act`, `second_act`): what is done to which
dataset by whom and why, on which terms, and under which POLICY entry, named by its hash. Its
SHA-256 is the challenge of a WebAuthn assertion (W3C Web Authentication, level 2, section 7.2),
which a verifier checks offline: challenge, origin, relying party, presence and verification of the
person, and the signature (ES256) by a key that the policy in force names for that person. The hash
of the policy, that of the allowance which an ALLOW replaces, the entry that a REVERSAL corrects and
the job of a RESERVE make an act stand once only.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from accountant.core.errors import UNREADABLE, VerificationFailed, invalid
from accountant.core.ledger.canonical_json import canonical, read_json
from accountant.core.ledger.commitments import is_hidden
from accountant.core.ledger.hash_chain import Entry, EntryKind, digest
from accountant.core.ledger.lineage import is_free
from accountant.core.ledger.policy import PRIVATE, Policy, Signer, read_signer

Document = Mapping[str, Any]

#: The parts of a signature: those of an assertion, the act's nonce, and the fingerprint of the key.
FIELDS = frozenset({"nonce", "key", "authenticator_data", "client_data", "signature"})

_ACTS = {
    EntryKind.RESERVE: "approve",
    EntryKind.ALLOW: "allow",
    EntryKind.REVERSAL: "correct",
    EntryKind.POLICY: "policy",
}
#: What of a RESERVE its approver signs; its costs follow from the event.
_ASKED = ("mechanism", "parameters", "terms", "model", "event", "source", "ex_post", "overdraft")
_ABOUT_PEOPLE = frozenset(
    {"reason", "proposed_by", "confirmed_by", "confirmation", "signature", "confirmation_signature"}
)
_PRESENT, _VERIFIED = 0x01, 0x04  # flags of authenticator data: user presence, user verification


@dataclass(frozen=True)
class Basis:
    """The hashes of the newest POLICY and ALLOW entries; None where there is none."""

    policy: str | None = None
    allowance: str | None = None


# --- the acts that an entry is made of ------------------------------------------------------------


def act_named(kind: EntryKind) -> str:
    """Return a policy's name for the act that leaves such an entry; "" if nobody signs it."""
    return _ACTS.get(kind, "")


def first_act(
    kind: EntryKind, dataset: str, job: str | None, actor: str, body: Document, basis: Basis
) -> dict[str, Any]:
    """Return the act of `actor`, who approved, set or proposed, without its nonce."""
    approval = body.get("approval") if kind is EntryKind.RESERVE else None
    terms = _terms(kind, body)
    if approval is not None:
        terms["analyst"] = actor
        terms |= {
            name: value
            for name, value in approval.items()
            if name not in ("by", "reason", "signature")
        }
    by = approval["by"] if approval is not None else body.get("proposed_by") or actor
    return {
        "act": act_named(kind),
        "dataset": dataset,
        "job": job,
        "by": by,
        "reason": (approval or body).get("reason", ""),
        "terms": terms,
        "policy": basis.policy,
        **({"allowance": basis.allowance} if kind is EntryKind.ALLOW else {}),
    }


def undecided(body: Document) -> dict[str, Any]:
    """Return the body of an overdraft as whoever declares it signs it."""
    declared = {name: body["overdraft"][name] for name in body["overdraft"] if name != "signature"}
    return {**body, "approval": None, "overdraft": declared}


def second_act(first: Document, body: Document) -> dict[str, Any]:
    """Return the act of whoever confirmed `first`, an act with its nonce; without its own nonce."""
    about = {
        "by": body["confirmed_by"],
        "reason": body["confirmation"],
        "proposed": challenge(first).hex(),
    }
    return {**{name: first[name] for name in first if name != "nonce"}, **about, "act": "confirm"}


def _terms(kind: EntryKind, body: Document) -> dict[str, Any]:
    if kind is EntryKind.POLICY:
        return {"policy": body["policy"]}
    if kind is EntryKind.REVERSAL:
        quoted = {name: digest(body[name]) for name in ("reserve", "corrects")}
        return {"event": body["event"], "cap": body["cap"], **quoted}
    if kind is EntryKind.RESERVE:
        terms = {name: body[name] for name in _ASKED if name in body}
        return terms | ({"secret": body["secret"]["release"]} if "secret" in body else {})
    return {name: value for name, value in body.items() if name not in _ABOUT_PEOPLE}


def challenge(act: Document) -> bytes:
    """Return what a passkey signs for an act and its nonce: SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(act)).digest()


# --- one signature --------------------------------------------------------------------------------


def check(signature: object, act: Document, signers: tuple[Signer, ...]) -> None:
    """Raise VerificationFailed unless one of `signers` signed the act with the nonce stated."""
    if not isinstance(signature, dict) or set(signature) != FIELDS:
        raise VerificationFailed(f"its signature is not {', '.join(sorted(FIELDS))}")
    signer = next(
        (signer for signer in signers if fingerprint(signer.key) == signature["key"]), None
    )
    if signer is None:
        raise VerificationFailed(
            f"it is signed with a key that the policy in force does not name for {act['by']!r:.80}"
        )
    try:
        client_data, authenticator_data, signed = (
            decoded(signature[name]) for name in ("client_data", "authenticator_data", "signature")
        )
        asked = challenge({**act, "nonce": signature["nonce"]})
        _check_client(read_json(client_data), asked, signer.origin)
        _check_authenticator(authenticator_data, signer.host)
        message = authenticator_data + hashlib.sha256(client_data).digest()
        public_key(signer.key).verify(signed, message, ECDSA(SHA256()))
    except InvalidSignature:
        raise VerificationFailed("its signature is not of the key that it names") from None
    except VerificationFailed:
        raise
    except UNREADABLE as error:
        raise VerificationFailed(f"its signature can't be read: {type(error).__name__}") from None


def _check_client(client: Document, wanted: bytes, origin: str) -> None:
    if client["type"] != "webauthn.get" or client.get("crossOrigin", False) is not False:
        raise VerificationFailed("its signature was not made by a page of the service")
    if client["origin"] != origin:
        raise VerificationFailed(
            f"it was signed at {client['origin']!r:.80}, and not at {origin!r:.80}"
        )
    if client["challenge"] != encoded(wanted):
        raise VerificationFailed("what was signed is not what the entry says")


def _check_authenticator(data: bytes, host: str) -> None:
    if len(data) < 37 or data[:32] != hashlib.sha256(host.encode()).digest():
        raise VerificationFailed(f"it was signed for another relying party than {host!r:.80}")
    if not data[32] & _PRESENT:
        raise VerificationFailed("nobody was present when it was signed")
    if not data[32] & _VERIFIED:
        raise VerificationFailed("who signed it was not verified by the passkey")


@lru_cache(maxsize=256)
def public_key(key: str) -> EllipticCurvePublicKey:
    """Return the public key in a signer's text. Raises InvalidRequest unless ES256 on P-256."""
    try:
        loaded = load_der_public_key(decoded(key))
    except UNREADABLE:
        loaded = None
    if not isinstance(loaded, EllipticCurvePublicKey) or not isinstance(loaded.curve, SECP256R1):
        raise invalid("signers", "a key is none of ES256", "a P-256 public key as base64url SPKI")
    return loaded


def fingerprint(key: str) -> str:
    """Return the SHA-256 (hex) of a signer's public key, which people compare."""
    return hashlib.sha256(decoded(key)).hexdigest()


def encoded(data: bytes) -> str:
    """Return bytes as base64url without padding, as WebAuthn writes them."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    """Return the inverse of `encoded`. Raises ValueError for any other way to write the bytes."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encoded(data) != text:
        raise ValueError("not base64url")
    return data


# --- entry by entry -------------------------------------------------------------------------------


class SignedActs:
    """The policy in force and the entries that acts stand on: whether each is signed as it asks."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self.basis = Basis()
        self._unknown = False  # the export does not show whose keys sign

    def must_sign(self, kind: EntryKind) -> bool:
        """Return whether the policy in force asks for signatures on entries of this kind."""
        return self.policy is not None and act_named(kind) in self.policy.signed

    def check(self, entry: Entry) -> bool:
        """Check the signatures of an entry; False where the export does not show them.

        Raises VerificationFailed where one is missing that the policy in force asks for, or one is
        not right.
        """
        approval = entry.body.get("approval") if entry.kind is EntryKind.RESERVE else None
        must = self.must_sign(entry.kind)
        if entry.kind is EntryKind.RESERVE and approval is None:
            if must and not is_free(entry.body):
                raise VerificationFailed(
                    "nobody approved it, and the policy asks for a signed approval"
                )
            return True
        if not act_named(entry.kind):
            return True
        if is_hidden(approval):
            return not must
        overdraft = entry.body.get("overdraft") if entry.kind is EntryKind.RESERVE else None
        signatures = (
            (approval or entry.body).get("signature"),
            entry.body.get("confirmation_signature")
            if overdraft is None
            else overdraft.get("signature"),
        )
        by_two = overdraft is not None or (
            entry.body.get("confirmed_by") is not None and entry.kind is not EntryKind.RESERVE
        )
        if not must and signatures == (None, None):
            return True
        if (
            is_hidden(entry.body.get("confirmed_by"))
            or any(map(is_hidden, signatures))
            or self._unknown
        ):
            return False
        if signatures[0] is None or (by_two and signatures[1] is None):
            raise VerificationFailed(
                f"the policy asks that who does this signs it ({act_named(entry.kind)}), and it is "
                "not signed"
            )
        first = first_act(entry.kind, entry.dataset, entry.job, entry.actor, entry.body, self.basis)
        check(signatures[0], first, self.signers(first["by"]))
        if by_two:
            if overdraft is None:
                second = second_act({**first, "nonce": signatures[0]["nonce"]}, entry.body)
            else:
                declared = undecided(entry.body)
                second = first_act(
                    entry.kind, entry.dataset, entry.job, entry.actor, declared, self.basis
                )
            check(signatures[1], second, self.signers(second["by"]))
        elif signatures[1] is not None:
            raise VerificationFailed("a second person signed it, and it names none")
        return True

    def signers(self, person: str) -> tuple[Signer, ...]:
        """Return the passkeys that the policy in force names for a person."""
        named = () if self.policy is None else map(read_signer, self.policy.signers)
        return tuple(signer for signer in named if signer.person == person)

    def written(self, entry: Entry, recorded_hash: str) -> None:
        """Keep what later acts are based on, once the entry was found right."""
        if entry.kind is EntryKind.ALLOW:
            self.basis = Basis(self.basis.policy, recorded_hash)
        elif entry.kind is EntryKind.POLICY:
            stated = entry.body["policy"]
            hidden = [name for name in PRIVATE if is_hidden(stated.get(name))]
            self.policy = Policy.model_validate({**stated, **dict.fromkeys(hidden, ())})
            self._unknown = "signers" in hidden
            self.basis = Basis(recorded_hash, self.basis.allowance)
