"""Passkeys in the browser: registered, used to sign in, and touched to sign an act or before one.

py_webauthn checks what a browser sends (W3C Web Authentication, level 2, sections 7.1 and 7.2);
what is signed for a ledger is checked once more as a verifier does, by
`accountant.core.ledger.signatures`. A passkey belongs to the host of EXCHEQUER_PUBLIC_URL, without
one to localhost: browsers make none for a bare address. A person is always verified (by PIN, finger
or face), so a passkey by itself is two factors.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import webauthn
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flask import Response, render_template, request
from flask_login import current_user
from webauthn.helpers import (
    base64url_to_bytes,
    decode_credential_public_key,
    decoded_public_key_to_cryptography,
    options_to_json_dict,
)
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from accountant.core.errors import NotFound, NotPermitted, SignatureNeeded
from accountant.core.ledger import signatures
from accountant.core.ledger.policy import Signer
from accountant.identities import credentials, passkeys, sign_ins
from accountant.identities.actor import Actor
from web.api.parsing import read_id
from web.context import engine, here, settings
from web.context import origin as origin_of

_VERIFIED = UserVerificationRequirement.REQUIRED
_ES256 = [COSEAlgorithmIdentifier.ECDSA_SHA_256]
_MILLISECONDS = 60_000 * passkeys.CHALLENGE_MINUTES
_NOT_RIGHT = "passkey: its answer is not right: try again, with a passkey of this service"


#: Fields of the page that asks who one is (confirmation.py).
CONFIRMING, PASSWORD = "confirming", "confirm_password"


@dataclass(frozen=True)
class Asked:
    """What the page asks a browser: options as JSON, and the id of the kept challenge."""

    id: UUID
    options: dict[str, Any]
    #: `create` or `get`, as navigator.credentials calls it.
    call: str = "get"


def relying_party() -> tuple[str, str]:
    """(host, origin) that passkeys belong to."""
    configured = settings()
    address = urlsplit(configured.public_url or f"http://localhost:{configured.port}")
    return address.hostname or "", f"{address.scheme}://{address.netloc.lower()}"


def page(
    asked: Asked | None, *, title: str, words: str, action: str, back: str, **shown: Any
) -> Response:
    """Return the page that asks for a touch, and sends the form that came to `action` with the
    answer.

    `asked` None: no passkey is asked for (`confirmation.py`).
    """
    host, origin = relying_party()
    values = {**_sent(), **shown.pop("values", {})}
    about = {"title": title, "words": words, "action": action, "back": back, "origin": origin}
    return Response(
        render_template("passkey.html", asked=asked, values=values, host=host, **about, **shown)
    )


def _sent() -> dict[str, list[str]]:
    ours = ("csrf_token", "passkey", "passkey_id", "password", CONFIRMING, PASSWORD)
    return {name: values for name, values in request.form.lists() if name not in ours}


# --- registering ----------------------------------------------------------------------------------


def ask_new(actor: Actor) -> Asked:
    """Ask a browser to make a passkey of the actor's."""
    host, _ = relying_party()
    options = webauthn.generate_registration_options(
        rp_id=host,
        rp_name="Exchequer",
        user_id=actor.id.bytes,
        user_name=actor.name,
        timeout=_MILLISECONDS,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED, user_verification=_VERIFIED
        ),
        exclude_credentials=_described(passkeys.of(engine(), actor.id)),
        supported_pub_key_algs=_ES256,
    )
    challenge = passkeys.ask(engine(), actor.id, "register", options.challenge)
    return Asked(challenge, options_to_json_dict(options), "create")


def register(actor: Actor, name: str) -> UUID:
    """Keep the passkey that a browser made for `ask_new`. Raises NotPermitted if it is wrong."""
    host, origin = relying_party()
    taken = passkeys.take(engine(), _challenge_id(), actor.id, "register")
    try:
        registration = webauthn.verify_registration_response(
            credential=_answer(),
            expected_challenge=taken.challenge,
            expected_rp_id=host,
            expected_origin=origin,
            require_user_verification=True,
            supported_pub_key_algs=_ES256,
        )
        public = decoded_public_key_to_cryptography(
            decode_credential_public_key(registration.credential_public_key)
        )
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise NotPermitted(_NOT_RIGHT) from None
    key = signatures.encoded(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    signatures.public_key(key)  # or why the ledger could not take it
    signer = Signer(actor.name, origin, key)
    facts = (
        registration.credential_id,
        registration.credential_public_key,
        signer,
        registration.sign_count,
    )
    return passkeys.add(engine(), actor, name, *facts)


# --- using ----------------------------------------------------------------------------------------


def ask_sign_in() -> Asked:
    """Ask a stranger's browser for any passkey of this service."""
    return _ask(None, "sign in", secrets.token_bytes(32), [])


def ask_again(actor: Actor) -> Asked:
    """Ask somebody who is signed in to show again that it is them."""
    return _ask(actor.id, "confirm", secrets.token_bytes(32), passkeys.of(engine(), actor.id))


def ask_act(actor: Actor, needed: SignatureNeeded) -> tuple[Asked, dict[str, Any]]:
    """Ask for the signature of an act; returns it with its nonce, as it will be signed."""
    act = {**needed.act, "nonce": secrets.token_hex(16)}
    own_passkeys = [
        passkey
        for passkey in passkeys.of(engine(), actor.id)
        if passkey["key_sha256"] in needed.keys
    ]
    if not own_passkeys:
        raise NotPermitted(
            "signature: the passkeys that the policy names for you are not on your account any more"
        )
    return _ask(actor.id, "act", signatures.challenge(act), own_passkeys, act["nonce"]), act


def _ask(
    user_id: UUID | None,
    purpose: str,
    challenge: bytes,
    own: list[dict[str, Any]],
    nonce: str | None = None,
) -> Asked:
    options = webauthn.generate_authentication_options(
        rp_id=relying_party()[0],
        challenge=challenge,
        timeout=_MILLISECONDS,
        allow_credentials=_described(own),
        user_verification=_VERIFIED,
    )
    stored_challenge = passkeys.ask(engine(), user_id, purpose, challenge, nonce)
    return Asked(stored_challenge, options_to_json_dict(options))


def _described(own: list[dict[str, Any]]) -> list[PublicKeyCredentialDescriptor]:
    return [PublicKeyCredentialDescriptor(id=passkey["credential_id"]) for passkey in own]


def user_of_passkey() -> Any | None:
    """Return the active user whose passkey answered `ask_sign_in` rightly, or None."""
    came = origin_of("passkey")
    try:
        passkey, _ = _used(None, "sign in")
    except (NotPermitted, NotFound):
        sign_ins.log_return(engine(), came, "wrong passkey")
        return None
    user = credentials.find_user(engine(), user_id=passkey.user_id)
    if user is not None:
        sign_ins.log(engine(), user.name, user.id, came, "signed in")
    return user


def answered_again(actor: Actor) -> bool:
    """Return whether the form answers `ask_again`. Raises NotPermitted if it is wrong."""
    if "passkey" not in request.form or CONFIRMING not in request.form:
        return False
    _used(actor.id, "confirm")
    return True


def given(actor: Actor) -> dict[str, Any] | None:
    """Return the signature in a form, as an entry holds it, or None. Raises NotPermitted."""
    if "passkey" not in request.form or CONFIRMING in request.form:
        return None
    passkey, nonce = _used(actor.id, "act")
    response = _answer()["response"]
    key = signatures.fingerprint(passkey.signer.rsplit(" ", 1)[1])
    parts = {"authenticator_data": "authenticatorData", "client_data": "clientDataJSON"}
    stated = {
        name: response[sent].rstrip("=")
        for name, sent in {**parts, "signature": "signature"}.items()
    }
    return {"nonce": nonce, "key": key, **stated}


def _used(user_id: UUID | None, purpose: str) -> tuple[Any, str | None]:
    """Return the passkey that answered, with the nonce that was kept for it; its use is noted."""
    taken = passkeys.take(engine(), _challenge_id(), user_id, purpose)
    host, origin = relying_party()
    answer = _answer()
    try:
        passkey = passkeys.find(engine(), base64url_to_bytes(answer["id"]))
        if passkey is None or passkey.user_id != (user_id or passkey.user_id):
            raise NotPermitted(_NOT_RIGHT)
        authentication = webauthn.verify_authentication_response(
            credential=answer,
            expected_challenge=taken.challenge,
            expected_rp_id=host,
            expected_origin=origin,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, TypeError, KeyError):
        raise NotPermitted(_NOT_RIGHT) from None
    passkeys.used(engine(), passkey, authentication.new_sign_count)
    return passkey, taken.nonce


def _challenge_id() -> UUID:
    return read_id(request.form.get("passkey_id", ""), "challenge")


def _answer() -> dict[str, Any]:
    try:
        answer = json.loads(request.form.get("passkey", ""))
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, Mapping) or not isinstance(answer.get("response"), Mapping):
        raise NotPermitted(_NOT_RIGHT)
    return dict(answer)


# --- what may be signed ---------------------------------------------------------------------------


def sign(needed: SignatureNeeded, back: str) -> Response:
    """Return the page that asks to sign an act and then sends the form with the signature."""
    actor: Actor = current_user.actor
    act_key, act = ask_act(actor, needed)
    words = (
        "The policy asks that you sign this with your passkey. What is signed stands below; the "
        "signature goes into the ledger, where anybody who verifies an export checks it."
    )
    return page(act_key, title="Sign this", words=words, action=here(), back=back, act=act)
