"""The policy of a dataset's jobs. Needs no numpy, so the client reads it too."""

from fractions import Fraction

from pydantic import BaseModel, ConfigDict, Field

from accountant.core.privacy.units import EPSILON_UNITS, exact, round_allowance


class Policy(BaseModel):
    """A steward's rules for a dataset's jobs. An empty list allows everybody, or everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    auto_approve_epsilon: str = Field("0", description="jobs whose epsilon alone is at most this run at once")
    solo: bool = Field(False, description="a steward may approve a job of their own; shown on the page")
    mechanisms: tuple[str, ...] = Field((), description="mechanisms that may be asked for")
    analysts: tuple[str, ...] = Field((), description="people who may ask")
    models: tuple[str, ...] = Field((), description="models that may be used")
    share_artifacts: bool = Field(
        False, description="whoever may ask sees and uses the artifacts of everybody's jobs"
    )
    secret_jobs: bool = Field(False, description="admit jobs that protect declared secrets, not records")
    approval_days: int | None = Field(
        None, ge=1, le=3650, description="a request that nobody decided on for so many days expires"
    )
    analyst_epsilon: str | None = Field(
        None,
        description="cap on the sum of the stand-alone epsilon of one person's jobs; a planning limit: it "
        "limits people, the filters limit the dataset; ex-post caps are not counted",
    )
    project_epsilon: str | None = Field(
        None, description="the same for the jobs of one project; every job must then name one"
    )
    two_people: bool = Field(
        False,
        description="raising the allowance needs two stewards, and so does a policy that admits more or asks "
        "for less than this one in any field",
    )
    charge_each_attempt: bool = Field(
        False, description="a job whose machine is lost after it began to read is charged and ends"
    )
    time_limit_seconds: int | None = Field(
        None, ge=1, le=31_536_000, description="an attempt at a job ends itself after this"
    )

    def check(self, prefix: str = "") -> None:
        """Raise InvalidRequest naming a field that is not a valid amount."""
        exact(self.auto_approve_epsilon, f"{prefix}auto_approve_epsilon")
        for name in ("analyst_epsilon", "project_epsilon"):
            if getattr(self, name) is not None:
                round_allowance(getattr(self, name), EPSILON_UNITS, prefix + name)

    def approves(self, epsilon_alone: float) -> bool:
        """True if a job of this epsilon needs no approval."""
        return Fraction(epsilon_alone) <= exact(self.auto_approve_epsilon, "auto_approve_epsilon")


def weakened(before: Policy, after: Policy) -> tuple[str, ...]:
    """The fields by which `after` admits more, or asks for less, than `before`.

    How long a request may wait and an attempt may run is nobody's protection, so these are free to change.
    """
    found = [
        name
        for name in ("solo", "share_artifacts", "secret_jobs")
        if getattr(after, name) and not getattr(before, name)
    ]
    found += [
        name
        for name in ("two_people", "charge_each_attempt")
        if getattr(before, name) and not getattr(after, name)
    ]
    for name in ("mechanisms", "analysts", "models"):  # an empty list allows all
        old, new = set(getattr(before, name)), set(getattr(after, name))
        if old and not (new and new <= old):
            found.append(name)
    if exact(after.auto_approve_epsilon) > exact(before.auto_approve_epsilon):
        found.append("auto_approve_epsilon")
    for name in ("analyst_epsilon", "project_epsilon"):
        old_cap, new_cap = (_cap(getattr(each, name)) for each in (before, after))
        if old_cap is not None and (new_cap is None or new_cap > old_cap):
            found.append(name)
    return tuple(found)


def _cap(value: str | None) -> int | None:
    return None if value is None else round_allowance(value, EPSILON_UNITS)
