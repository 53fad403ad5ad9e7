"""Signatures on the entries that people's acts leave, before they are posted.

Each writer of such an entry makes its body, and asks here for the signature that belongs into it.
Where none was sent and the policy asks for one, SignatureNeeded carries the act that was to be
signed: the transaction ends without a change, the page asks for a touch of the passkey, and sends
the same request again with the signature. So what is signed and what is posted come from the same
code, and what changed in between is found.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, select

from accountant import tables
from accountant.core.errors import Conflict, NotPermitted, SignatureNeeded, VerificationFailed
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy, read_signer
from accountant.core.ledger.signatures import (
    Basis,
    act_named,
    check,
    fingerprint,
    first_act,
    second_act,
)

#: As an entry holds it (core.ledger.signatures.FIELDS); None: none was sent.
Signature = Mapping[str, Any]

entries = tables.entries


def by_one(
    connection: Connection,
    dataset_id: UUID,
    policy: Policy,
    kind: EntryKind,
    job: UUID | None,
    actor: str,
    body: Mapping[str, Any],
    signature: Signature | None,
) -> dict[str, Any] | None:
    """Return the signature of who approves, sets or proposes what `body` says; None where the
    policy asks for none.

    `actor`: the entry's, or the proposer. Raises SignatureNeeded where it is missing, NotPermitted
    where the policy names no passkey of theirs, and Conflict where another act was signed than this
    one.
    """
    if act_named(kind) not in policy.signed:
        return None
    dataset, basis = _dataset(connection, dataset_id), _basis(connection, dataset_id)
    act = first_act(kind, dataset, None if job is None else str(job), actor, body, basis)
    return _checked(policy, act, signature)


def by_second(
    connection: Connection,
    dataset_id: UUID,
    policy: Policy,
    kind: EntryKind,
    job: UUID | None,
    body: Mapping[str, Any],
    signature: Signature | None,
) -> dict[str, Any]:
    """Return the body of an entry that two people make, with both signatures where the policy asks
    for them.

    `body` holds both people, and the proposer's signature where there is one. Raises as `by_one`,
    and Conflict where the proposer did not sign under the policy in force.
    """
    if act_named(kind) not in policy.signed:
        return {name: value for name, value in body.items() if name != "signature"}
    dataset, basis = _dataset(connection, dataset_id), _basis(connection, dataset_id)
    first = first_act(kind, dataset, None if job is None else str(job), "", body, basis)
    proposed = body.get("signature")
    try:
        check(proposed, first, _signers(policy, first["by"]))
    except VerificationFailed as error:
        raise Conflict(
            f"its proposer did not sign this as it stands now ({error}): propose it anew"
        ) from None
    assert proposed is not None
    second = second_act({**first, "nonce": proposed["nonce"]}, body)
    return {**body, "confirmation_signature": _checked(policy, second, signature)}


def _checked(policy: Policy, act: dict[str, Any], signature: Signature | None) -> dict[str, Any]:
    signers = _signers(policy, act["by"])
    if not signers:
        raise NotPermitted(
            f"signature: the policy of {act['dataset']!r} asks that this is signed, and names no "
            "passkey of yours"
        )
    if signature is None:
        raise SignatureNeeded(act, tuple(fingerprint(signer.key) for signer in signers))
    try:
        check(dict(signature), act, signers)
    except VerificationFailed as error:
        raise Conflict(f"signature: {error}; look at it as it is now, and sign that") from None
    return dict(signature)


def _signers(policy: Policy, person: str) -> tuple[Any, ...]:
    return tuple(signer for signer in map(read_signer, policy.signers) if signer.person == person)


def _dataset(connection: Connection, dataset_id: UUID) -> str:
    names = select(tables.datasets.c.name).where(tables.datasets.c.id == dataset_id)
    return str(connection.execute(names).scalar_one())


def _basis(connection: Connection, dataset_id: UUID) -> Basis:
    """Return the hashes of the newest POLICY and ALLOW of a dataset whose account is held."""

    def newest(kind: EntryKind) -> str | None:
        query = select(entries.c.hash).where(
            entries.c.dataset_id == dataset_id,
            entries.c.kind == str(kind),
            entries.c.kind.in_(tables.RULE_KINDS),
        )
        return connection.execute(query.order_by(entries.c.seq.desc()).limit(1)).scalar()

    return Basis(newest(EntryKind.POLICY), newest(EntryKind.ALLOW))
