"""The end of a job: what it may be charged, and what its COMMIT or VOID may say.

A mechanism that `stops_early` makes fewer of its repeated releases where what it had released told
it to stop, one of each kind at least. Any other makes all: where its meter recorded fewer, all are
charged.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import VerificationFailed
from accountant.core.ledger.accounts import read_demand
from accountant.core.ledger.charges import check_end
from accountant.core.ledger.commitments import is_hidden
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.reservations import Reservation, read_event
from accountant.core.mechanisms import charge
from accountant.core.privacy.events import Event, from_releases, releases
from accountant.core.privacy.units import EPSILON_UNITS, read_amount

Body = Mapping[str, Any]

#: Outcomes of a COMMIT, which settles what read records or was free.
OUTCOMES = ("succeeded", "failed", "cancelled")
#: Outcomes of a VOID, under which nothing private was read.
VOID_OUTCOMES = ("failed", "cancelled")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def charged(mechanism_id: str, reserved: Event, realized: Event) -> Event:
    """Return the event charged for a succeeded job: `realized`, or more if it released more."""
    if realized == reserved or mechanism_id == charge.ID:  # its runner signs what it made
        return realized
    if not mechanisms.get(mechanism_id).stops_early:
        return reserved
    released = releases(realized)
    missing = [leaf for leaf in releases(reserved) if not released[leaf]]
    if not missing:
        return realized
    released.update(dict.fromkeys(missing, 1))
    return from_releases(released)


def most_ex_post(parameters: Body) -> int:
    """Return the most that the tokens of a median can cost, in 10^-9.

    Logits lie within the clip. So a token's logit and the normaliser each move by at most twice the
    clip over the temperature. A millionth covers rounding.
    """
    token = 4 * Fraction(parameters["clip"]) / Fraction(parameters["temperature"])
    part = token + (token + 1) / 10**6
    return math.ceil(int(parameters["tokens_per_batch"]) * part * EPSILON_UNITS)


#: The mechanism of a live job, whether it reads records, the most that it costs ex post, and of a
#: charge its parameters.
Live = tuple[str, bool, int, Body | None]


class Ends:
    """Checks, entry by entry, that each job ends as its mechanism can. Keeps a word a live job."""

    def __init__(self) -> None:
        self.live: dict[str | None, Live] = {}
        self._signatures: set[str] = set()

    def add(self, entry: Entry, held: Reservation | None) -> None:
        """Check one more entry, which resolves `held`. Raises VerificationFailed."""
        if entry.kind is EntryKind.RESERVE:
            body = entry.body
            most = most_ex_post(body["parameters"]) if "ex_post" in body else 0
            stated = body["parameters"] if body["mechanism"] == charge.ID else None
            self._begin_once(stated)
            self.live[entry.job] = body["mechanism"], "version" in body["source"], most, stated
        elif entry.kind in (EntryKind.COMMIT, EntryKind.VOID):
            known = self.live.get(entry.job)
            if known is None or held is None:
                raise VerificationFailed("it resolves a reservation that is not live")
            if entry.kind is EntryKind.VOID:
                _check_void(entry.body)
            else:
                _check_commit(entry.body, held, *known[:3])
                if known[3] is not None:
                    check_end(known[3], entry.dataset, str(entry.job), entry.body, held.event)
                elif "evidence" in entry.body:
                    raise VerificationFailed("it states evidence, and its job is no charge")
            del self.live[entry.job]

    def _begin_once(self, stated: Body | None) -> None:
        """Raise VerificationFailed if a runner's signature began an earlier charge."""
        signature = None if stated is None else stated.get("signature")
        if signature in self._signatures:
            raise VerificationFailed("its runner's signature began another charge already")
        if signature is not None:
            self._signatures.add(signature)


def _check_void(body: Body) -> None:
    _one_of(body["outcome"], VOID_OUTCOMES)
    if body["read"] is not False:
        raise VerificationFailed(
            f"its read is {body['read']!r:.40}, and nothing is read under what is void"
        )


def _check_commit(body: Body, held: Reservation, mechanism_id: str, reads: bool, most: int) -> None:
    outcome, read, output = body["outcome"], body["read"], body["output_sha256"]
    _one_of(outcome, OUTCOMES)
    if type(body["attempt"]) is not int or body["attempt"] < 1:
        raise VerificationFailed(f"its attempt is {body['attempt']!r:.40}")
    if type(read) is not bool:
        raise VerificationFailed(f"its read is {read!r:.40}")
    if read is not reads:
        if reads:
            raise VerificationFailed("its job reads records, and it says that nothing was read")
        raise VerificationFailed("its job reads no records, and it says that some were read")
    if output is not None:
        if outcome != "succeeded":
            raise VerificationFailed("it names an output of a job that did not succeed")
        if not isinstance(output, str) or _SHA256.fullmatch(output) is None:
            raise VerificationFailed(f"its output_sha256 is {output!r:.80}")
    if "ex_post" in body and not is_hidden(body["ex_post"]["cap"]):
        realized = read_amount(body["ex_post"]["cap"], "ex_post.cap")
        if realized > max(most, held.others.ex_post):
            raise VerificationFailed("its tokens can't cost so much ex post")
    if outcome == "succeeded":
        _check_whole(body, held, mechanism_id)


def _check_whole(body: Body, held: Reservation, mechanism_id: str) -> None:
    """Check that a succeeded job gives back nothing that its mechanism can't leave out."""
    event = read_event(body["event"])
    early = mechanisms.get(mechanism_id).stops_early
    if event != held.event and releases(charged(mechanism_id, held.event, event)) != releases(
        event
    ):
        least = "at least one of each of its releases" if early else "all of its releases"
        count, whole = (sum(releases(part).values()) for part in (event, held.event))
        raise VerificationFailed(
            f"{mechanism_id} makes {least}, and it says {count:,} of {whole:,}"
        )
    wanted = held.others.secret
    if (
        wanted is not None
        and "secret" in body
        and not early
        and read_demand(event, body).secret != wanted
    ):
        raise VerificationFailed(f"{mechanism_id} takes all of its rounds, and it says otherwise")


def _one_of(outcome: object, known: tuple[str, ...]) -> None:
    if outcome not in known:
        raise VerificationFailed(
            f"its outcome is {outcome!r:.40}, and there are {', '.join(known)}"
        )
