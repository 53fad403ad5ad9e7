"""The fields of a plan: until when an allowance lasts at a pace."""

from pydantic import Field

from accountant.schema.base import Answer
from accountant.schema.quotes import Room


class MonthOfPlan(Answer):
    """One month of a plan, after its jobs."""

    month: str = Field(description="as 2027-03")
    jobs: int = Field(description="of this month, as many as fit")
    so_far: int
    left: int = Field(description="jobs of this shape that still fit")
    share_left: float | None = Field(description="of the filter with most room; null: none is charged")


class Plan(Answer):
    """So many people who each ask for so many jobs of one shape a month."""

    people: int
    each: int = Field(description="jobs a month of each person")
    a_month: int
    start: str = Field(description="the first month")
    jobs: int | None = Field(description="of this shape that fit; null: free, or not told")
    told: bool = Field(description="false: the number depends on what ex-post jobs really cost")
    own_jobs: int | None = Field(None, description="under one person's cap, unused; null: there is none")
    binding: Room | None = Field(None, description="what ends them")
    months: int | None = Field(None, description="whole months that it lasts; null as `jobs`")
    last: str | None = Field(None, description="the last whole month; null: not one, or beyond a century")
    rest: int | None = Field(None, description="jobs of the month after that fit")
    until: str | None = Field(None, description="the month for which the largest pace was asked")
    largest_each: int | None = Field(None, description="most jobs a month of each person through `until`")
    largest_together: int | None = Field(None, description="most jobs a month of all through `until`")
    share_left: float | None = Field(None, description="of the allowance, now")
    rows: list[MonthOfPlan] = Field(default_factory=list, description="the first MOST_ROWS months")
