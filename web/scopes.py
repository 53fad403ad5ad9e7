"""Token scopes: for each route of the API the scope that it needs, in one place.

A route that writes and is not named here needs a token with every scope, as signing in gives one.
"""

from accountant.identities.credentials import SCOPES

#: scope -> what it opens, for the page where tokens are made and for docs/accounts.md.
MEANINGS = {
    "read": "see what you may see, price requests, download results and exports",
    "jobs:submit": "ask for jobs, cancel them, and comment on them",
    "budget:approve": "answer decisions (approve, refuse, accept an offer), make offers, set "
    "allowances",
    "data:manage": "send files, register datasets, versions, corpora and models, set policies",
    "admin": "accounts: add, close, roles, passwords; maintenance",
}

#: What belongs to no scope: any token may ask whose it is, and end itself.
_OPEN = frozenset({"api.me", "api.sign_out"})
# they change nothing
_READING = frozenset({"api.quote", "api.quote_offer", "api.preview_allowance"})
_WRITING = {
    "jobs:submit": (
        "submit",
        "cancel",
        "comment",
        "begin",
        "alive",
        "settle",
        "push",
        "record_push",
    ),
    "budget:approve": (
        "answer",
        "offer",
        "allow",
        "correct",
        "declare_overdraft",
        "make_checkpoint",
    ),
    "data:manage": (
        "add_dataset",
        "correct_dataset",
        "add_version",
        "set_policy",
        "upload",
        "discard_upload",
        "add_corpus",
        "add_model",
    ),
    "admin": (
        "add_user",
        "set_roles",
        "deactivate_user",
        "activate_user",
        "reset_password",
        "unlock_user",
        "sign_out_user",
        "revoke_tokens_of_user",
        "switch_maintenance",
    ),
    # A token that made others, or took others away, would be worth more than it says; and an
    # address goes on being told after its setter's token ended.
    "every scope": (
        "make_token",
        "revoke_token",
        "sign_out_everywhere",
        "change_password",
        "add_notice",
        "remove_notice",
        "test_notice",
    ),
}
_SCOPE = {f"api.{name}": scope for scope, names in _WRITING.items() for name in names}


def stated(endpoint: str) -> bool:
    """Return True if a route that writes is named above."""
    return endpoint in _SCOPE or endpoint in _READING or endpoint in _OPEN


def needed(endpoint: str, method: str) -> tuple[str, ...]:
    """Return the scopes that a token needs for a route."""
    if endpoint in _OPEN:
        return ()
    if method in ("GET", "HEAD", "OPTIONS") or endpoint in _READING:
        return ("read",)
    scope = _SCOPE.get(endpoint)
    return (scope,) if scope in SCOPES else SCOPES
