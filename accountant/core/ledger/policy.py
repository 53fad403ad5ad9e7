"""The policy of a dataset's jobs. Needs no numpy, so the client reads it too."""

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from accountant.core.errors import invalid
from accountant.core.names import NAME
from accountant.core.privacy.units import EPSILON_UNITS, exact, is_plain, round_allowance

#: Acts of which entries tell, and so can hold a signature (signatures.py).
ACTS = ("approve", "allow", "correct", "policy")

#: Caps in ε: how much jobs of one kind may add up to.
CAPS = (
    "analyst_epsilon",
    "project_epsilon",
    "stated_charges_epsilon",
    "signed_charges_epsilon",
    "shared_epsilon",
)

#: Fields that come after version 0.1.0, those of one change together: none yet. An entry from
#: before a change states none of its fields.
LATER: tuple[tuple[str, ...], ...] = ()

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_SHARE = re.compile(r"(\S+) ([1-9][0-9]{0,3})")
_RUNNER = re.compile(rf"({NAME[1:-1]}) ([0-9a-f]{{64}})")
_PORT = "(?::[1-9][0-9]{0,4})?"
_ORIGIN = f"https://[a-z0-9.-]{{1,253}}{_PORT}|http://localhost{_PORT}"
_SIGNER = re.compile(rf"({NAME[1:-1]}) ({_ORIGIN}) ([A-Za-z0-9_-]{{100,400}})")


class Signer(NamedTuple):
    """A person's passkey: the one origin that may use it, and its public key (base64url SPKI)."""

    person: str
    origin: str
    key: str

    @property
    def host(self) -> str:
        """The host of the origin, which is the relying party."""
        return urlsplit(self.origin).hostname or ""

    def __str__(self) -> str:
        return f"{self.person} {self.origin} {self.key}"


def read_signer(text: str, field: str = "signers") -> Signer:
    """Return the inverse of a Signer's text. Raises InvalidRequest naming `field`."""
    match = _SIGNER.fullmatch(text)
    if match is None:
        problem, allowed = (
            f"{text!r:.60} is no signer",
            "person, origin and public key, a space between",
        )
        raise invalid(field, problem, allowed)
    return Signer(*text.split(" "))


class Policy(BaseModel):
    """A steward's rules for a dataset's jobs. An empty list allows everybody, or everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    auto_approve_epsilon: str = Field(
        "0",
        description=(
            "jobs of up to this ε run without a steward, such as 0.1. Ex-post jobs "
            "and jobs about secrets always need one"
        ),
    )
    solo: bool = Field(
        False,
        description=(
            "a steward may approve a job of their own, and the page of the dataset then says so"
        ),
    )
    mechanisms: tuple[str, ...] = Field(
        (),
        description=(
            "ways to make results that may be asked for, such as noisy-count. None named: all"
        ),
    )
    analysts: tuple[str, ...] = Field(
        (), description="people who may ask for jobs, such as ada. None named: all"
    )
    stewards: tuple[str, ...] = Field(
        (), description="stewards who decide here, such as grace. None named: all stewards"
    )
    auditors: tuple[str, ...] = Field(
        (), description="auditors who read the ledger, such as alan. None named: all auditors"
    )
    departed_analysts: bool = Field(
        False,
        description=(
            "a steward may approve the job of a person who left while it was "
            "waiting. The entry says so"
        ),
    )
    models: tuple[str, ...] = Field(
        (), description="models that jobs may use, such as smollm2. None named: all"
    )
    share_artifacts: bool = Field(
        False, description="all who may ask see and use what any job released, such as its counts"
    )
    secret_jobs: bool = Field(
        False,
        description=(
            "admit jobs that guard declared secrets and not records. After the "
            "first of them no (ε, δ) statement holds"
        ),
    )
    approval_days: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=3650,
        description=(
            "a job that nobody decides on ends after so many days, such as 14. Empty: it never does"
        ),
    )
    analyst_epsilon: str | None = Field(
        None,
        description=(
            "the most ε that the jobs of one person may add up to, such as 1. "
            "Ex-post caps are not counted"
        ),
    )
    project_epsilon: str | None = Field(
        None,
        description=(
            "the most ε that the jobs of one project may add up to, such as 1. Each"
            " job must then name one"
        ),
    )
    shared_epsilon: str | None = Field(
        None,
        description=(
            "the ε that all jobs from the first month on may add up to, such as 12. "
            "It is released over time. Empty: nothing is shared"
        ),
    )
    release_start: str | None = Field(
        None, description="the first month of the release (UTC), such as 2027-01"
    )
    release_months: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=120,
        description="months over which it is released in equal parts, such as 12",
    )
    shares: tuple[str, ...] = Field(
        (),
        description=(
            "who has a share of each month's release: for each a name and a weight, such as "
            "ada 2. What they leave falls to all. None: first come, first served"
        ),
    )
    share_by_project: bool = Field(
        False, description="shares belong to projects, and each job names one. Else to analysts"
    )
    wait_for_release: bool = Field(
        False,
        description=(
            "a job that fits a later release waits for it. Who has used the "
            "smallest share goes first. Else it is refused"
        ),
    )
    stated_charges_epsilon: str | None = Field(
        None,
        description=(
            "the most ε that charges of other programs may add up to as people state them, such as "
            "1. Empty: none are admitted"
        ),
    )
    signed_charges_epsilon: str | None = Field(
        None,
        description=(
            "the most ε that charges of other programs may add up to that a runner signs, such as "
            "1. Empty: none are admitted"
        ),
    )
    runners: tuple[str, ...] = Field(
        (),
        description=(
            "runners that may sign charges: for each a name and an Ed25519 public key in hex, a "
            "space between"
        ),
    )
    two_people: bool = Field(
        False,
        description="two stewards must agree to a larger limit or to weaker rules",
    )
    charge_each_attempt: bool = Field(
        False,
        description=(
            "a job whose machine fails while it reads is charged and ends. Else it "
            "runs again, free of charge"
        ),
    )
    time_limit_seconds: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=31_536_000,
        description=(
            "a try at a job ends after so many seconds, such as 3600. Empty: as the service has it"
        ),
    )
    results_every_seconds: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=86_400,
        description=(
            "jobs end at steps of so many seconds for all who watch, such as 60. A "
            "stopwatch then learns nothing"
        ),
    )
    signed: tuple[str, ...] = Field(
        (), description="acts that a passkey must sign, one or more of: " + ", ".join(ACTS)
    )
    signers: tuple[str, ...] = Field(
        (),
        description=(
            "passkeys that may sign: for each a person, an origin and a public key."
            " Give each person two, in case one is lost"
        ),
    )

    @field_validator("auto_approve_epsilon", *CAPS)
    @classmethod
    def _in_one_form(cls, amount: str | None) -> str | None:
        """Return an amount in the one form that entries have: 2.5, however it was typed."""
        if amount is None or not is_plain(amount) or abs(Decimal(amount).adjusted()) > 100:
            return amount  # `check` says what is wrong with it
        return format(Decimal(amount).normalize(), "f")

    def check(self, prefix: str = "") -> None:
        """Raise InvalidRequest naming a field that is not a valid amount."""
        exact(self.auto_approve_epsilon, f"{prefix}auto_approve_epsilon")
        for name in CAPS:
            if getattr(self, name) is not None:
                round_allowance(getattr(self, name), EPSILON_UNITS, prefix + name)
        for runner in self.runners:
            if _RUNNER.fullmatch(runner) is None:
                allowed = "a name and 64 hex digits of a key, a space between"
                raise invalid(f"{prefix}runners", f"{runner!r:.60} is no runner", allowed)
        self._check_sharing(prefix)
        self._check_signing(prefix)

    def _check_sharing(self, prefix: str) -> None:
        if self.shared_epsilon is None:
            return
        if self.release_start is None or _MONTH.fullmatch(self.release_start) is None:
            problem = f"{self.release_start!r:.40} is no month"
            raise invalid(f"{prefix}release_start", problem, "a month, such as 2027-01")
        if self.release_months is None:
            raise invalid(f"{prefix}release_months", "not given", "1 to 120")
        for share in self.shares:
            if _SHARE.fullmatch(share) is None:
                allowed = "a name and a weight from 1 to 9999, a space between"
                raise invalid(f"{prefix}shares", f"{share!r:.60} is no share", allowed)
        if len(self.weights) < len(self.shares):
            raise invalid(f"{prefix}shares", "a name stands twice", "each name once")

    @property
    def counts_projects(self) -> bool:
        """True if each job must name a project."""
        shared = self.shared_epsilon is not None and self.share_by_project
        return self.project_epsilon is not None or shared

    @property
    def weights(self) -> dict[str, int]:
        """The weight of each person's or project's share."""
        pairs = (share.rpartition(" ") for share in self.shares)
        return {name: int(weight) for name, _, weight in pairs}

    def _check_signing(self, prefix: str) -> None:
        people = {read_signer(signer, f"{prefix}signers").person for signer in self.signers}
        unknown = sorted(set(self.signed) - set(ACTS))
        if unknown:
            raise invalid(
                f"{prefix}signed", f"unknown {', '.join(map(repr, unknown))}", ", ".join(ACTS)
            )
        if self.signed and "policy" not in self.signed:
            problem = "without `policy`, an unsigned policy could end it"
            raise invalid(f"{prefix}signed", problem, "policy, besides other acts")
        if "approve" in self.signed and exact(self.auto_approve_epsilon):
            problem = "such jobs would run without the signature that approvals need"
            raise invalid(f"{prefix}auto_approve_epsilon", problem, "0, where approvals are signed")
        if self.signed and len(people) < 1 + self.two_people:
            least = "passkeys of two people" if self.two_people else "a passkey of somebody"
            raise invalid(f"{prefix}signers", "nobody could sign what has to be signed", least)

    def approves(self, epsilon_alone: float) -> bool:
        """Return True if a job of this epsilon needs no approval. A limit of 0 approves nothing."""
        limit = _limit(self.auto_approve_epsilon)
        return limit > 0 and Fraction(epsilon_alone) <= limit


@lru_cache(maxsize=256)
def _limit(stated: str) -> Fraction:
    return exact(stated, "auto_approve_epsilon")


#: Which field lists the owners of each role.
OWNERS = {"steward": "stewards", "auditor": "auditors"}
#: The fields that name people.
PEOPLE = ("analysts", *OWNERS.values())
#: All that say something of people.
PRIVATE = (*PEOPLE, "signers", "shares")


def weakened(before: Policy, after: Policy) -> tuple[str, ...]:
    """Return the fields by which `after` admits more, or asks for less, than `before`.

    Other owners and signers are weaker in either direction: who is added decides, and who is left
    out no longer watches. How long a request may wait and an attempt may run is nobody's
    protection, so these are free to change.
    """
    weaker = [
        name
        for name in ("solo", "share_artifacts", "secret_jobs", "departed_analysts")
        if getattr(after, name) and not getattr(before, name)
    ]
    weaker += [
        name
        for name in ("two_people", "charge_each_attempt")
        if getattr(before, name) and not getattr(after, name)
    ]
    for name in ("mechanisms", "analysts", "models"):  # an empty list allows all
        old, new = set(getattr(before, name)), set(getattr(after, name))
        if old and not (new and new <= old):
            weaker.append(name)
    if set(before.signed) - set(after.signed):
        weaker.append("signed")
    for name in (*OWNERS.values(), "signers"):
        if set(getattr(before, name)) != set(getattr(after, name)):
            weaker.append(name)
    if exact(after.auto_approve_epsilon) > exact(before.auto_approve_epsilon):
        weaker.append("auto_approve_epsilon")
    if _slot(after) < _slot(before):
        weaker.append("results_every_seconds")
    for name in ("analyst_epsilon", "project_epsilon", "shared_epsilon"):
        old_cap, new_cap = (_cap(getattr(policy, name)) for policy in (before, after))
        if old_cap is not None and (new_cap is None or new_cap > old_cap):
            weaker.append(name)
    for name in ("stated_charges_epsilon", "signed_charges_epsilon"):  # none: nothing is admitted
        if (_cap(getattr(after, name)) or 0) > (_cap(getattr(before, name)) or 0):
            weaker.append(name)
    weaker += _weaker_sharing(before, after)
    if set(after.runners) - set(before.runners):
        weaker.append("runners")
    return tuple(weaker)


def _weaker_sharing(before: Policy, after: Policy) -> list[str]:
    """Return the fields by which `after` releases earlier or shares out otherwise.

    Other shares are weaker in either direction: what one person gains another loses.
    """
    if before.shared_epsilon is None or after.shared_epsilon is None:
        return []
    changed = {
        "release_start": (after.release_start or "") < (before.release_start or ""),
        "release_months": (after.release_months or 0) < (before.release_months or 0),
        "shares": set(after.shares) != set(before.shares),
        "share_by_project": after.share_by_project != before.share_by_project,
    }
    return [name for name, is_weaker in changed.items() if is_weaker]


def _slot(policy: Policy) -> int:
    """Return how coarse the times are at which jobs end; finer ones tell more, none tells all."""
    return policy.results_every_seconds or 0


def _cap(value: str | None) -> int | None:
    return None if value is None else round_allowance(value, EPSILON_UNITS)
