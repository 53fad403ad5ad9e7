"""A passkey in software, and ledgers whose acts are signed with some: for the tests of
verification.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from accountant.core.ledger import signatures
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import ACTS, Signer
from accountant.core.ledger.signatures import Basis, act_named, encoded, first_act, second_act
from tests.ledger_exports import DATASET, Ledger, Line, fewer, two, written

HOST = "ledger.example"


class Passkey:
    """A P-256 key that signs as an authenticator does, and wrongly where it is told to."""

    def __init__(self, person: str, host: str = HOST) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        public = self.private.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        self.signer = Signer(person, f"https://{host}", encoded(public))

    def sign(
        self,
        act: Mapping[str, Any],
        *,
        flags: int = 0x05,
        host: str | None = None,
        client: Mapping[str, Any] | None = None,
        text: tuple[str, str] = ("", ""),
    ) -> dict[str, str]:
        """The signature of an act without its nonce, as an entry holds it."""
        nonce = secrets.token_hex(16)
        asked = signatures.challenge({**act, "nonce": nonce})
        parts = self.answer(asked, flags=flags, host=host, client=client, text=text)
        return {"nonce": nonce, "key": signatures.fingerprint(self.signer.key), **parts}

    def answer(
        self,
        asked: bytes,
        *,
        flags: int = 0x05,
        host: str | None = None,
        client: Mapping[str, Any] | None = None,
        count: int = 1,
        text: tuple[str, str] = ("", ""),
    ) -> dict[str, str]:
        """The three parts of an assertion over a challenge. `text`: replaced once in the client
        data.
        """
        said = {
            "type": "webauthn.get",
            "challenge": encoded(asked),
            "origin": self.signer.origin,
            "crossOrigin": False,
            **(client or {}),
        }
        data = json.dumps(said, separators=(",", ":")).replace(*text, 1).encode()
        party = hashlib.sha256((host or self.signer.host).encode()).digest()
        authenticator = party + bytes([flags]) + count.to_bytes(4, "big")
        made = self.private.sign(authenticator + hashlib.sha256(data).digest(), ec.ECDSA(SHA256()))
        return {
            "authenticator_data": encoded(authenticator),
            "client_data": encoded(data),
            "signature": encoded(made),
        }

    @property
    def cose(self) -> bytes:
        """The public key as an authenticator writes it."""
        numbers = self.private.public_key().public_numbers()
        x, y = (each.to_bytes(32, "big") for each in (numbers.x, numbers.y))
        return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})


#: sam and tom are the stewards of tests.ledger_exports.
SAM, TOM = Passkey("sam"), Passkey("tom")
PASSKEYS = {"sam": SAM, "tom": TOM}
SIGNING: Mapping[str, Any] = {
    "signed": list(ACTS),
    "signers": [str(SAM.signer), str(TOM.signer)],
    "stewards": ["sam", "tom"],
}


def signed_ledger() -> Ledger:
    """Every act that a policy can ask signatures of, signed; the first policy that asks for them is
    not.
    """
    ledger = Ledger()
    ledger.register()
    ledger.policy()
    ledger.policy(two(), **SIGNING)
    ledger.register(version=1)
    ledger.allow(people=two())
    for job in ("first", "second"):
        event = ledger.reserve(job, tokens_per_batch=10, batches_per_label=1)
        ledger.commit(job, fewer(event) if job == "first" else event)
    ledger.commit("count", ledger.reserve("count", "noisy-count", epsilon=0.2), "failed")
    ledger.reverse("first")
    ledger.allow("9")
    ledger.policy(**{**SIGNING, "analysts": ["ana", "sam"]})
    ledger.policy(two(), **{**SIGNING, "analysts": ["ana", "sam"], "solo": True})
    ledger.allow("12", people=two("tom", "sam"))
    ledger.lines[-1].actor = "sam"
    ledger.reserve("live", tokens_per_batch=10, batches_per_label=1)
    sign_all(ledger.lines)
    return ledger


def sign_all(lines: list[Line], passkeys: Mapping[str, Passkey] = PASSKEYS) -> None:
    """Sign every act as its entry says it, by whom it says, where a POLICY before it asks for
    that.
    """
    asked: Iterable[str] = ()
    for place, line in enumerate(lines):
        kind = EntryKind(line.kind)
        if act_named(kind) in asked and (kind is not EntryKind.RESERVE or line.body["approval"]):
            sign(lines, place, passkeys)
        if kind is EntryKind.POLICY:
            asked = line.body["policy"].get("signed", ())


def acts_of(lines: list[Line], place: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The first act of an entry, and its second where two people made it, as the entries before it
    stand.
    """
    line, before = lines[place], written(lines[:place])
    kinds = [each.kind for each in lines[:place]]

    def newest(kind: str) -> str | None:
        return next(
            (h for k, h in zip(kinds[::-1], before[1][::-1], strict=True) if k == kind), None
        )

    basis = Basis(newest("POLICY"), newest("ALLOW"))
    first = first_act(EntryKind(line.kind), DATASET, line.job, line.actor, line.body, basis)
    signature = line.body.get("signature")
    if "confirmed_by" not in line.body or signature is None:
        return first, None
    return first, second_act({**first, "nonce": signature["nonce"]}, line.body)


def sign(
    lines: list[Line], place: int, passkeys: Mapping[str, Passkey] = PASSKEYS, **how: Any
) -> None:
    """Sign the entry at this place, by all who made it."""
    if lines[place].kind == "REVERSAL":  # it quotes entries that were signed meanwhile
        lines[place].body = dict(opened(written(lines[: place + 1])[0][-1])["body"])
    body = lines[place].body
    holder = body["approval"] if lines[place].kind == "RESERVE" else body
    for name in ("signature", "confirmation_signature"):
        holder.pop(name, None)
    first, _ = acts_of(lines, place)
    holder["signature"] = passkeys[first["by"]].sign(first, **how)
    second = acts_of(lines, place)[1]
    if second is not None:
        body["confirmation_signature"] = passkeys[second["by"]].sign(second, **how)
