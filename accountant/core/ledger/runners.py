"""What a runner signs of a charge, and its signature. Needs no numpy, so the client signs by it."""

from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from accountant.core.ledger.canonical_json import canonical

Body = Mapping[str, Any]


def begin_act(dataset: str, parameters: Body) -> dict[str, Any]:
    """Return what a runner signs before it runs."""
    said = {
        name: value
        for name, value in parameters.items()
        if name != "signature" and value is not None
    }
    return {"act": "begin a charge", "dataset": dataset, "parameters": said}


def settle_act(dataset: str, job: str, history: Any, output: str | None) -> dict[str, Any]:
    """Return what a runner signs when it has run: `history` is what it released. None: all."""
    said = {"act": "settle a charge", "dataset": dataset, "job": job}
    return {**said, "history": history, "output": output}


def public_key(seed: bytes) -> str:
    """Return the public key of a runner, as policies name it."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw().hex()


def sign(act: Body, seed: bytes) -> str:
    """Return a runner's signature of an act."""
    return Ed25519PrivateKey.from_private_bytes(seed).sign(canonical(act)).hex()


def is_signed(act: Body, runner: str, signature: object) -> bool:
    """Return True if a runner, its name and key, has signed an act."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(runner.split(" ")[1]))
        key.verify(bytes.fromhex(str(signature)), canonical(act))
    except (InvalidSignature, ValueError, IndexError):
        return False
    return True
