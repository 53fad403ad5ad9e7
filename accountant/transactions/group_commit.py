"""Many threads that need one lock: one of them, the leader, serves all who wait.

    ask ── queue of the key ──▶ leader: serve(key, take) ──▶ answers, in order of arrival
                                   │ take(): who waits by now, the longest first
                                   └ when it is done, the next one leads

Flat combining (Hendler, Incze, Shavit and Tzafrir 2010) for a transaction instead of a data
structure. Nothing here is durable: a process that dies loses questions that nobody has answered.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q")
A = TypeVar("A")


class Ticket(Generic[Q, A]):
    """A thread's question. The gate opens when it is answered, or when it is to lead."""

    __slots__ = ("_answer", "done", "error", "gate", "question")

    def __init__(self, question: Q) -> None:
        self.question = question
        self.done = False
        self.error: BaseException | None = None
        self.gate = Lock()
        self.gate.acquire()

    def answer(self, answer: A) -> None:
        self._answer, self.done = answer, True

    def fail(self, error: BaseException) -> None:
        self.error, self.done = error, True

    def result(self) -> A:
        if self.error is not None:
            raise self.error
        return self._answer


@dataclass
class _Queue(Generic[Q, A]):
    """The tickets waiting on one key. It exists as long as there is a leader."""

    leader: Ticket[Q, A]
    waiting: deque[Ticket[Q, A]] = field(default_factory=deque)


class Take(Generic[Q, A]):
    """A leader's hand on its queue: called, it takes who waits by now, the longest first."""

    def __init__(self, combiner: "Combiner[Any, Q, A]", key: Hashable) -> None:
        self._combiner, self._key = combiner, key
        self.taken: list[Ticket[Q, A]] = []

    def __call__(self) -> list[Ticket[Q, A]]:
        with self._combiner.lock:
            waiting = self._combiner.queues[self._key].waiting
            room = self._combiner.most - len(self.taken)
            new = [waiting.popleft() for _ in range(min(room, len(waiting)))]
            self.taken += new
        return new


class Combiner(Generic[K, Q, A]):
    """Queues by key. `serve` answers or fails every ticket that it takes; at most `most` at a
    time.

    Who waits for longer than `seconds` meets the error `late`, and what was asked may still be
    done.
    """

    def __init__(
        self,
        serve: Callable[[K, Take[Q, A]], None],
        most: int,
        seconds: float = -1,
        late: Callable[[], Exception] = TimeoutError,
    ) -> None:
        self._serve = serve
        self.most = most
        self._seconds, self._late = seconds, late
        self.lock = Lock()
        self.queues: dict[Hashable, _Queue[Q, A]] = {}

    def ask(self, key: K, question: Q) -> A:
        """Return the answer to `question`, or raise its error, in turn with all of this key."""
        ticket: Ticket[Q, A] = Ticket(question)
        try:
            with self.lock:
                queue = self.queues.setdefault(key, _Queue(ticket))
                queue.waiting.append(ticket)
                leads = queue.leader is ticket
            if not leads and not ticket.gate.acquire(timeout=self._seconds):
                self._give_up(key, ticket)
            if not ticket.done:
                self._lead(key, ticket)
        finally:
            # In the finally: somebody who gives up (KeyboardInterrupt) must not take the lead
            # along.
            self._leave(key, ticket)
        return ticket.result()

    def waiting(self, key: K) -> int:
        """Return the number of waiting tickets that no leader has taken yet."""
        with self.lock:
            queue = self.queues.get(key)
            return 0 if queue is None else len(queue.waiting)

    def _give_up(self, key: K, ticket: Ticket[Q, A]) -> None:
        with self.lock:
            queue = self.queues.get(key)
            if queue is not None and ticket in queue.waiting:
                queue.waiting.remove(ticket)
            ticket.fail(self._late())

    def _lead(self, key: K, own: Ticket[Q, A]) -> None:
        take = Take(self, key)
        try:
            self._serve(key, take)
        except Exception as error:
            # Where the lock was not to be had, that is the answer to all who waited for it.
            for ticket in take.taken or take():
                if not ticket.done:
                    ticket.fail(error)
        finally:
            # Interrupted: the others go back to their places, for the next leader.
            with self.lock:
                others = [each for each in take.taken if not each.done and each is not own]
                self.queues[key].waiting.extendleft(reversed(others))
            for ticket in take.taken:
                if ticket.done and ticket is not own:
                    ticket.gate.release()

    def _leave(self, key: K, ticket: Ticket[Q, A]) -> None:
        """Out of the queue; if it led, the one who waits longest leads now."""
        with self.lock:
            queue = self.queues.get(key)
            if queue is None:
                return
            if not ticket.done and ticket in queue.waiting:
                queue.waiting.remove(ticket)
            if queue.leader is not ticket:
                return
            if queue.waiting:
                queue.leader = queue.waiting[0]
                queue.leader.gate.release()
            else:
                del self.queues[key]
