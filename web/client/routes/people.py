"""Routes for accounts, tokens, their owner, and addresses of notices."""

from collections.abc import Iterator
from typing import Any

from web.client.errors import Json
from web.client.transport import Transport, given, part


class PeopleRoutes(Transport):
    """People."""

    def sign_in(self, name: str, password: str) -> Json:
        """Return a token for `name`: {token, expires_at, name, roles}."""
        return self._json("POST", "/session", json={"name": name, "password": password})

    def sign_out(self) -> Json:
        """End the token that this client uses."""
        return self._json("DELETE", "/session")

    def me(self) -> Json:
        """Return the token's owner, and what the token may do."""
        return self._json("GET", "/me")

    def change_password(self, current: str, new: str) -> Json:
        """Change one's own password; sessions and sign-ins' tokens end, this one too."""
        return self._json("POST", "/me/password", json={"current": current, "new": new})

    def sign_out_everywhere(self) -> Json:
        """End every session of one's own, and every token that a sign-in made."""
        return self._json("POST", "/me/sign-out-everywhere")

    def sign_ins(self, **wanted: Any) -> Iterator[Json]:
        """Return tries to sign in, newest first. `wanted`: name, outcome, method."""
        return self._pages("/sign-ins", "sign_ins", wanted)

    # --- tokens
    # -------------------------------------------------------------------------------------

    def tokens(self) -> list[Json]:
        """Return one's own tokens that work; never the tokens themselves."""
        return self._list("/me/tokens", "tokens")

    def add_token(self, name: str, scopes: list[str], days: int) -> Json:
        """Return a token of one's own with some scopes; it is shown once."""
        return self._json("POST", "/me/tokens", json={"name": name, "scopes": scopes, "days": days})

    def revoke_token(self, token_id: str) -> Json:
        """End a token."""
        return self._json("POST", f"/me/tokens/{part(token_id)}/revoke")

    def maintenance(self) -> Json:
        """Return whether the service admits nothing now, and how many jobs still run."""
        return self._json("GET", "/maintenance")

    def set_maintenance(self, on: bool, reason: str) -> Json:
        """Begin maintenance, or end it."""
        return self._json("PUT", "/maintenance", json={"on": on, "reason": reason})

    # --- accounts (administrators)
    # ------------------------------------------------------------------

    def users(self) -> list[Json]:
        """Return all accounts, by name."""
        return list(self._pages("/users", "users", {}))

    def user(self, name: str) -> Json:
        """Return one account, with its lock."""
        return self._json("GET", f"/users/{part(name)}")

    def user_tokens(self, name: str) -> list[Json]:
        """Return the tokens of an account that work; never the tokens themselves."""
        return self._list(f"/users/{part(name)}/tokens", "tokens")

    def add_user(self, name: str, password: str | None, roles: list[str]) -> Json:
        """Return a new account; without a password a one-time one is made, and shown once."""
        body = {"name": name, "roles": roles, **given({"password": password})}
        return self._json("POST", "/users", json=body)

    def set_roles(self, name: str, roles: list[str]) -> Json:
        """Return other roles for an account; its sessions end."""
        return self._json("PUT", f"/users/{part(name)}/roles", json={"roles": roles})

    def act_on_user(self, name: str, act: str) -> Json:
        """`act`: activate, deactivate, reset-password, unlock, sign-out or revoke-tokens."""
        return self._json("POST", f"/users/{part(name)}/{part(act)}")


# --- Notices: addresses that are told when something changes -------------------------------------


class NoticeRoutes(Transport):
    """Addresses for notices, which administrators set."""

    def notice_events(self) -> list[Json]:
        """Return the events that an address may be told of, and who may see each."""
        return self._list("/notices/events", "events")

    def notices(self) -> list[Json]:
        """Return your addresses, or all of them for an administrator."""
        return self._list("/notices", "notices")

    def add_notice(self, url: str, events: list[str], *, kind: str, person: str) -> Json:
        """Set a person's address for notices. `kind`: mail, chat, teams, json, openlineage."""
        body = {"url": url, "events": events, "kind": kind, "person": person}
        return self._json("POST", "/notices", json=body)

    def remove_notice(self, notice_id: str) -> Json:
        """End the notices to an address; what was not sent yet is not sent."""
        return self._json("DELETE", f"/notices/{part(notice_id)}")

    def test_notice(self, notice_id: str) -> Json:
        """Send a message that says nothing."""
        return self._json("POST", f"/notices/{part(notice_id)}/test")
