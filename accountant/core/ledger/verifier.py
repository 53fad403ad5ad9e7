"""Verification of a ledger entry by entry, without a server or a database.

Checks the hash chain and its times; that every reservation is resolved at most once and in order;
that each recorded cost follows from its event and each event from its parameters; that each act
kept to the rules in force (rules.py) and each job ended as it can (realization.py); and the
balances at the end.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from accountant.core.errors import UNREADABLE, VerificationFailed
from accountant.core.ledger.accounts import NO_EX_POST
from accountant.core.ledger.books import Books, failing
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.charges import Vouched
from accountant.core.ledger.checkpoints import Checkpoint
from accountant.core.ledger.commitments import commitment_count, private_counts, published_text
from accountant.core.ledger.entry_fields import check_fields
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, read_entry
from accountant.core.ledger.lineage import Elsewhere, Lineage, Release, check_named
from accountant.core.ledger.losses import covers, sentence, uncovered
from accountant.core.ledger.orders import check_price, order_of
from accountant.core.ledger.realization import Ends
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.reservations import Reservation
from accountant.core.ledger.reversals import quoted
from accountant.core.ledger.rules import Rules, by_two
from accountant.core.ledger.statements import NO_FINGERPRINTS


@dataclass(frozen=True)
class Verified:
    """The result for a valid ledger: its number of entries, last hash, and books."""

    dataset: str
    entries: int
    head: str
    books: Books
    live: int
    #: Private values that the export does not show; their commitments are covered by the chain.
    hidden: int = 0
    #: The checkpoints that it agrees with, the one that it carries included.
    checkpoints: tuple[Checkpoint, ...] = ()
    #: 32 bytes for each entry, in order.
    hashes: bytes | bytearray = b""
    #: What the export says of its place in a public log (core/transparency): not checked yet.
    log_proof: Any = None
    #: What could not be checked because the export does not show it, in sentences.
    unproved: tuple[str, ...] = ()
    #: The terms that the last REGISTER states. None: the ledger has no entries.
    terms: Mapping[str, Any] | None = None
    #: What another program put around the text of the export (export_formats.py).
    added: tuple[str, ...] = ()
    #: The time of the last entry, and of the entry that `log_proof` is of.
    at: datetime | None = None
    logged_at: datetime | None = None
    #: What jobs read of public jobs of other datasets, and what jobs of this one released.
    elsewhere: tuple[Elsewhere, ...] = ()
    releases: Mapping[str, Release] = field(default_factory=dict)
    #: It shows no private value.
    public: bool = False
    #: What charges of other programs add up to by themselves, by who vouches for them.
    vouched: Mapping[str, int] = field(default_factory=dict)
    #: A worker read the data, and compared its people with those of other data.
    data_is_here: bool = True

    def beside(self, others: Mapping[str, "Verified"]) -> "Verified":
        """Return the ledger beside verified ledgers by name, which prove what its jobs read of
        their datasets.

        Raises VerificationFailed where one of them shows that something was not released by a
        public job.
        """
        for each in self.elsewhere:
            if each.dataset in others:
                each.check(others[each.dataset].releases)
        proved = {str(each) for each in self.elsewhere if each.dataset in others}
        return replace(self, unproved=tuple(each for each in self.unproved if each not in proved))


def summary(books: Books, live: int, *, public: bool = False) -> dict[str, Any]:
    """Return balances as the header of an export states them; `live` is the number of unsettled
    reservations.

    A `public` summary, and that of a checkpoint, omits what public entries don't show: the sum of
    ex-post costs, and whether a correction passed the ex-post allowance.
    """
    account = books.account
    other_accounts: dict[str, Any] = {}
    if books.ex_post != NO_EX_POST:
        ex_post = books.ex_post
        other_accounts["ex_post"] = [
            str(ex_post.limit),
            None if public else str(ex_post.spent),
            str(ex_post.reserved),
        ]
    if books.secret is not None:
        held = books.secret
        other_accounts["secret"] = [
            str(held.limit),
            str(held.spent),
            str(held.reserved),
            str(held.jobs),
        ]
    return {
        **other_accounts,
        **({"overdrawn": True} if books.overdrawn and not public else {}),
        **({"losses": books.history.losses} if books.history.losses else {}),
        **({"overdrafts": books.history.overdrafts} if books.history.overdrafts else {}),
        "live_reservations": live,
        "filters": None
        if account is None
        else [
            {
                "kind": str(filter_.filter.kind),
                "limit": [str(filter_.limit.main), str(filter_.limit.delta)],
                "spent": [str(filter_.spent.main), str(filter_.spent.delta)],
                "reserved": [str(filter_.reserved.main), str(filter_.reserved.delta)],
                "closed": filter_.closed,
            }
            for filter_ in account.filters
        ],
    }


class Judge:
    """Whether an entry may stand where it is: all but its place in the chain, and the sums of the
    books.

    A verifier feeds it every entry. A writer gives it the rules in force and the earlier entries of
    the jobs that an entry speaks of (`recall`), then the entry to be written.

    Args:
        hash_of: returns the hash of an entry by its number, or None if the ledger holds none there.
    """

    def __init__(self, rules: Rules, hash_of: Callable[[int], str | None]) -> None:
        self.rules, self._hash_of = rules, hash_of
        self.lineage = Lineage()
        self._ends = Ends()
        self._corrections: dict[str | None, int] = {}  # by job, the number of its newest REVERSAL

    def recall(self, entry: Entry, held: Reservation | None) -> None:
        """Take in an earlier entry of a job, which was judged when it was written."""
        self.lineage.add(entry)
        self._ends.add(entry, held)
        if entry.kind is EntryKind.REVERSAL:
            self._corrections[entry.job] = entry.seq

    def add(self, entry: Entry, books: Books, held: Reservation | None) -> None:
        """Check one more entry. Raises VerificationFailed, or another error about a value in it.

        Args:
            books: the books before it.
            held: the live reservation of its job.
        """
        check_fields(entry)
        asked = check_price(entry.body) if entry.kind is EntryKind.RESERVE else None
        self.lineage.add(entry)
        if entry.kind is EntryKind.RESERVE:
            check_named(entry.body)
        self.rules.add(entry, books, asked)
        if entry.kind is EntryKind.RESERVE:
            order_of(entry, self.rules)
        if entry.kind is EntryKind.REVERSAL:
            self._check_quotations(entry)
            self._corrections[entry.job] = entry.seq
        self._ends.add(entry, held)

    def _check_quotations(self, entry: Entry) -> None:
        """Check that a REVERSAL quotes two entries of this chain, the second its job's newest."""
        try:
            reserved, corrected = quoted(entry.body)
        except UNREADABLE as error:
            raise VerificationFailed(f"what it quotes can't be read: {error}") from None
        for seq, hashed in (reserved, corrected):
            if type(seq) is not int or not 0 < seq < entry.seq or self._hash_of(seq) != hashed:
                raise VerificationFailed(
                    f"it quotes an entry {seq!r:.40} that this ledger does not hold"
                )
        newest = self._corrections.get(entry.job)
        if newest not in (None, corrected[0]):
            raise VerificationFailed(f"it corrects entry {corrected[0]}, entry {newest} stands")
        if not by_two(entry):
            raise VerificationFailed("it names no two people")


class Verifier:
    """Checks entries fed in order and gives the result at the end. Holds the books, not the
    entries.

    Each of `checkpoints`, from the same ledger, must equal the balances at its entry. In a `public`
    export every private value is hidden, and in any other none is.
    """

    def __init__(
        self,
        dataset: str | None = None,
        checkpoints: Iterable[Checkpoint] = (),
        *,
        public: bool = False,
        logged: int = 0,
    ) -> None:
        self.dataset = dataset
        self.public = public
        self._logged = logged  # the entry whose place in a log the export proves
        self._time: datetime | None = None
        self._logged_at: datetime | None = None
        self.replay = Replay()
        self.rules = Rules()
        self._judge = Judge(self.rules, self._hash_of)
        self.lineage = self._judge.lineage
        self._at = ""  # times in entries have one form, so their texts are in the order of time
        self.head = GENESIS
        self.count = 0
        self._hashes = bytearray()  # 32 bytes an entry, so that quotations can be checked
        self.hidden = 0
        self._checkpoints = tuple(sorted(checkpoints, key=lambda each: each.seq))
        #: Those that this ledger holds, and those that it does not, with what is wrong.
        self._met: list[Checkpoint] = []
        self._unmet: list[tuple[Checkpoint, VerificationFailed]] = []
        self._losses: list[Entry] = []
        self._vouched = Vouched()
        self._meet()

    def add(
        self, document: Mapping[str, Any], recorded_hash: str, text: str | None = None
    ) -> Entry:
        """Check one entry against everything before it. Raises VerificationFailed naming it.

        Args:
            text: the canonical text of the document, if it was written already.
        """
        seq = self.count + 1
        entry = read_entry(document, seq)
        if self.dataset is None:
            self.dataset = entry.dataset
        if entry.dataset != self.dataset:
            raise VerificationFailed(f"it belongs to {entry.dataset!r}", seq)
        if entry.previous != self.head:
            raise VerificationFailed("it does not follow the entry before it", seq)
        if document["at"] < self._at:
            raise VerificationFailed("its time is before that of the entry before it", seq)
        try:
            published = published_text(document, text or value_text(document))
            if hashlib.sha256(published.encode()).hexdigest() != recorded_hash:
                raise VerificationFailed("its content does not match its hash")
            self._check_shown(document, published)
            held = None if entry.job is None else self.replay.held(entry.job)
            with failing():
                self._judge.add(entry, self.replay.now, held)
            self.replay.apply(entry.kind, entry.job, entry.body)
            if entry.kind is not EntryKind.RESERVE:
                check_not_negative(self.replay.now)
        except UNREADABLE as error:  # ValueError: what has no canonical form
            raise VerificationFailed(str(error), seq) from None
        self.rules.acts.written(entry, recorded_hash)
        if entry.kind is EntryKind.LOSS:
            self._losses.append(entry)
        elif entry.kind is EntryKind.RESERVE:
            self._vouched.reserve(entry.job, entry.actor, entry.body)
        elif entry.kind is EntryKind.VOID:
            self._vouched.count(entry.job, False)
        elif entry.kind is EntryKind.REVERSAL:
            self._vouched.count(entry.job, entry.body["counts"])
        self.head, self._at, self._time = recorded_hash, document["at"], entry.at
        self.count += 1
        if self.count == self._logged:
            self._logged_at = entry.at
        self._hashes += bytes.fromhex(recorded_hash)
        self._meet()
        return entry

    def _check_shown(self, document: Mapping[str, Any], published: str) -> None:
        """Check that an export hides what is private if it is public, and else nothing."""
        private, unseen = check_hidden(document, published)
        if self.public and unseen < private:
            raise VerificationFailed(
                "it shows a private value, and the export says that it is public"
            )
        if unseen and not self.public:
            raise VerificationFailed(
                "it hides a value, and the export does not say that it is public"
            )
        self.hidden += unseen

    def _hash_of(self, seq: int) -> str | None:
        return self._hashes[32 * seq - 32 : 32 * seq].hex() if seq <= self.count else None

    def _meet(self) -> None:
        """Compare with the checkpoints made at this entry."""
        while (checkpoint := self._next_checkpoint()) and checkpoint.seq <= self.count:
            try:
                agree(checkpoint, self.result(partial=True))
                self._met.append(checkpoint)
            except VerificationFailed as error:
                self._unmet.append((checkpoint, error))

    def _next_checkpoint(self) -> Checkpoint | None:
        compared = len(self._met) + len(self._unmet)
        return self._checkpoints[compared] if compared < len(self._checkpoints) else None

    def _lost(self) -> tuple[str, ...]:
        """Return what can't be checked as entries were lost.

        Raises VerificationFailed for a checkpoint that the ledger does not hold, unless a LOSS says
        why.
        """
        beyond = self._checkpoints[len(self._met) + len(self._unmet) :]
        missed = [*self._unmet, *((each, self._cut_off(each)) for each in beyond)]
        sentences = []
        for checkpoint, problem in missed:
            loss = next((loss for loss in self._losses if covers(loss, checkpoint)), None)
            if loss is None:
                raise problem
            sentences.append(uncovered(loss, checkpoint))
        return (*map(sentence, self._losses), *sentences)

    def _cut_off(self, checkpoint: Checkpoint) -> VerificationFailed:
        return VerificationFailed(
            f"the ledger is cut off: it ends at entry {self.count}, a checkpoint was signed at "
            f"{checkpoint.seq}"
        )

    def result(self, *, partial: bool = False) -> Verified:
        """Return the result so far. Unless `partial`, no checkpoint may lie beyond it."""
        lost = () if partial else self._lost()
        replay = self.replay
        return Verified(
            self.dataset or "",
            self.count,
            self.head,
            replay.books,
            replay.live_count,
            self.hidden,
            checkpoints=tuple(self._met),
            hashes=self._hashes,
            unproved=(
                *lost,
                *self.rules.unproved,
                *map(str, self.lineage.elsewhere),
                *self._vouched.sentences(),
                *(() if self.rules.data_is_here else (NO_FINGERPRINTS,)),
            ),
            terms=self.rules.terms,
            at=self._time,
            logged_at=self._logged_at,
            elsewhere=tuple(self.lineage.elsewhere),
            releases=self.lineage.releases.of,
            public=self.public,
            vouched=self._vouched.sums(),
            data_is_here=self.rules.data_is_here,
        )


def agree(checkpoint: Checkpoint, found: Verified) -> None:
    """Raise VerificationFailed unless the checkpoint matches this ledger as verified so far."""
    if found.dataset and checkpoint.dataset != found.dataset:
        raise VerificationFailed(
            f"the checkpoint is of dataset {checkpoint.dataset!r}, not {found.dataset!r}"
        )
    if (checkpoint.seq, checkpoint.head) != (found.entries, found.head):
        raise VerificationFailed(
            f"the history up to entry {checkpoint.seq} is not the one that a checkpoint was signed "
            "for"
        )
    if value_text(checkpoint.balances) != value_text(summary(found.books, found.live, public=True)):
        raise VerificationFailed(
            f"the balances at entry {checkpoint.seq} are not those that a checkpoint was signed for"
        )
    if found.at is not None and checkpoint.at < found.at:
        raise VerificationFailed(
            f"a checkpoint of {checkpoint.at:%Y-%m-%d %H:%M:%S} covers entry {checkpoint.seq}, "
            f"which was written at {found.at:%Y-%m-%d %H:%M:%S}"
        )


def check_hidden(document: Mapping[str, Any], published: str) -> tuple[int, int]:
    """Return the number of private values, and of those not shown.

    Raises VerificationFailed where something else looks like a value that is hidden.
    """
    private, unseen = private_counts(document)
    if commitment_count(published) != private:
        raise VerificationFailed("it hides a value that is not private")
    return private, unseen


def check_not_negative(books: Books) -> None:
    """Raise VerificationFailed if a balance is below zero: more given back than charged."""
    amounts = [books.ex_post.reserved]
    if not books.ex_post.hidden:  # then the sum says nothing
        amounts.append(books.ex_post.spent)
    if books.secret is not None:
        amounts += [books.secret.spent, books.secret.reserved, books.secret.jobs]
    for filter_ in () if books.account is None else books.account.filters:
        spent, reserved = filter_.spent, filter_.reserved
        amounts += [spent.main, spent.delta, reserved.main, reserved.delta, filter_.closed]
    if min(amounts) < 0:
        raise VerificationFailed("a balance is below zero after it")


def read_document(text: str) -> dict[str, Any]:
    """Return an entry's stored document, private values opened. Raises VerificationFailed."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise VerificationFailed("it is no JSON") from None
    if not isinstance(value, dict):
        raise VerificationFailed("it is no JSON object")
    return value
