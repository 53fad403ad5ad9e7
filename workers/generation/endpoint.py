"""Writing with an OpenAI-compatible endpoint: prompts that are public by type, answers as texts.

What goes out is the prompt, the declared model, and how to write. The name is resolved for each
request, every address is checked as a notice's is, and the connection goes to one of those very
addresses; redirects are not followed and proxies not used. A request that fails in passing is sent
again, a few times; each try is taken from the spending limit beforehand, at the most that it can
cost, so that the limit is never passed.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import httpx2
from pydantic import SecretStr
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from accountant.core.errors import InvalidRequest
from accountant.core.ledger.canonical_json import canonical
from accountant.core.webhook_rules import Network, Target, read_url
from workers.addresses import addresses
from workers.data.public_text import PublicPrompt, PublicText, vouch
from workers.generation.writer import Manner, WriterError, Written

TRIES = 6
FIRST_WAIT_SECONDS, MOST_WAIT_SECONDS = 1.0, 30.0
#: Requests under way at once.
TOGETHER = 8
MOST_ANSWER_BYTES = 4 * 2**20
#: What a chat template may add to a prompt, and characters of a token, at least and about.
TEMPLATE_TOKENS, TOKEN_CHARACTERS = 64, 4
#: Statuses that pass: try again.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class _Passing(Exception):
    """An error that may pass: the next try may succeed."""


@dataclass(frozen=True)
class Registered:
    """An endpoint as its steward declared it.

    `requests`, `tokens`: the most that one attempt at a job may send, and may read and write.
    `chat`: prompts are messages (/chat/completions); else texts that are continued (/completions).
    """

    name: str
    url: str
    model: str
    chat: bool
    requests: int
    tokens: int


@dataclass
class Spending:
    """The amount sent so far, under a limit that is never passed."""

    limit: Registered
    requests: int = 0
    tokens: int = 0

    def take(self, tokens: int) -> None:
        """Count a request beforehand, at its most. Raises WriterError past the limit."""
        most = self.limit
        if self.requests + 1 > most.requests or self.tokens + tokens > most.tokens:
            what = f"{most.requests:,} requests and {most.tokens:,} tokens"
            raise WriterError(
                f"the endpoint {most.name!r}: the spending limit of {what} is reached"
            )
        self.requests += 1
        self.tokens += tokens

    def give_back(self, tokens: int) -> None:
        """Give back the tokens that an answered request did not use."""
        self.tokens -= tokens


@dataclass(frozen=True)
class Endpoint:
    """A Writer elsewhere. `check` is called while requests are under way, and may raise to end
    them.

    `seconds`: for one try, from its first byte to its last. `key`: sent as a bearer token, and
    shown nowhere.
    """

    registered: Registered
    key: SecretStr | None
    allowed: Sequence[Network]
    seconds: float
    check: Callable[[], None] = lambda: None
    seed: int | None = None
    spending: Spending = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spending", Spending(self.registered))

    @property
    def name(self) -> str:
        """Its registered name."""
        return self.registered.name

    def seeded(self, seed: int | None) -> "Endpoint":
        """Return the endpoint, under the same limit, asked for repeatable draws."""
        endpoint = replace(self, seed=seed)
        object.__setattr__(endpoint, "spending", self.spending)
        return endpoint

    def length(self, text: PublicText) -> int:
        """As `Writer.length`: no token is longer than about four characters, as a rule."""
        return -(-len(text) // TOKEN_CHARACTERS)

    def shortened(self, text: PublicText, tokens: int) -> PublicText:
        """As `Writer.shortened`, by characters."""
        return text.through(lambda whole: whole[: tokens * TOKEN_CHARACTERS])

    def room(self, manner: Manner) -> int:  # noqa: ARG002
        """As `Writer.room`: what a request may cost bounds it."""
        return self.registered.tokens

    def write(
        self, prompts: Sequence[PublicPrompt], manner: Manner, each: int = 1
    ) -> Iterator[Written]:
        """As `Writer.write`; a few requests at a time."""
        asks = ((row, row * each + number) for row in range(len(prompts)) for number in range(each))
        while group := list(islice(asks, TOGETHER)):
            yield from asyncio.run(self._together(prompts, manner, group))

    async def _together(
        self, prompts: Sequence[PublicPrompt], manner: Manner, group: list[tuple[int, int]]
    ) -> list[Written]:
        # One connection a request: an endpoint that dies takes no other answer with it.
        limits = httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(
            trust_env=False, timeout=self.seconds, limits=limits
        ) as client:
            tasks = [
                asyncio.create_task(self._ask(client, prompts[row], manner, row, number))
                for row, number in group
            ]
            waiting = set(tasks)
            try:
                while waiting:
                    done, waiting = await asyncio.wait(waiting, timeout=1)
                    self.check()
                    for future in done:
                        future.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            return [task.result() for task in tasks]

    async def _ask(
        self,
        client: httpx2.AsyncClient,
        prompt: PublicPrompt,
        manner: Manner,
        row: int,
        number: int,
    ) -> Written:
        if not isinstance(prompt, PublicPrompt):
            raise TypeError("an endpoint is asked with a PublicPrompt only")
        path, body = self._body(prompt, manner, number)
        content = json.dumps(body).encode()
        most = manner.max_tokens + len(prompt.text.encode()) + TEMPLATE_TOKENS
        retrying = AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            wait=wait_random_exponential(multiplier=FIRST_WAIT_SECONDS, max=MOST_WAIT_SECONDS),
            retry=retry_if_exception_type(_Passing),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    self.spending.take(most)
                    answer = await self._sent(client, path, content)
                    text, complete = self._read(answer, manner)
                    self.spending.give_back(most - _used(answer, most))
        except _Passing as error:
            raise WriterError(f"the endpoint {self.name!r} {error}, {TRIES} times") from None
        return Written(vouch(text), complete, row)

    def _body(
        self, prompt: PublicPrompt, manner: Manner, number: int
    ) -> tuple[str, dict[str, Any]]:
        """Return a request's path below the endpoint's address, and its body."""
        body: dict[str, Any] = {
            "model": self.registered.model,
            "max_tokens": manner.max_tokens,
            "temperature": manner.temperature,
        }
        if manner.stop:
            body["stop"] = [manner.stop]
        if self.seed is not None:
            body["seed"] = self.seed + number
        if self.registered.chat:
            messages = [{"role": "user", "content": str(prompt.text)}]
            return "/chat/completions", body | {"messages": messages}
        return "/completions", body | {"prompt": str(prompt.text)}

    async def _sent(self, client: httpx2.AsyncClient, path: str, content: bytes) -> bytes:
        """Return the body of an answer with status 200. Raises _Passing, or WriterError where no
        other try helps.
        """
        try:
            async with asyncio.timeout(self.seconds):
                target, address = await asyncio.to_thread(self._where)
                async with client.stream(
                    "POST",
                    f"{target.scheme}://{_bracketed(address)}:{target.port}{target.path.rstrip('/')}{path}",
                    content=content,
                    headers=self._headers(target),
                    # whose certificate is asked for and checked
                    extensions={"sni_hostname": target.host},
                ) as response:
                    return await _bounded(response)
        except TimeoutError:
            raise _Passing(f"did not answer within {self.seconds:g} seconds") from None
        except InvalidRequest as error:
            raise WriterError(f"the endpoint {self.name!r} {error.problems[0].problem}") from None
        except _Status as error:
            if error.status in _PASSING:
                raise _Passing(f"answered {error.status}") from None
            raise WriterError(f"the endpoint {self.name!r} answered {error.status}") from None
        # their texts may quote what was sent
        except (httpx2.HTTPError, OSError, UnicodeError) as error:
            raise _Passing(f"could not be reached ({type(error).__name__})") from None

    def _where(self) -> tuple[Target, str]:
        target = read_url(self.registered.url, self.allowed)
        return target, addresses(target, self.allowed)[0]

    def _headers(self, target: Target) -> dict[str, str]:
        headers = {
            "Host": target.host_header,
            "Content-Type": "application/json",
            "User-Agent": "Exchequer/1",
        }
        return (
            headers
            if self.key is None
            else headers | {"Authorization": f"Bearer {self.key.get_secret_value()}"}
        )

    def _read(self, answer: bytes, manner: Manner) -> tuple[str, bool]:
        """(text, whether it ended by itself). Raises _Passing for what is no completion."""
        try:
            choice = json.loads(answer)["choices"][0]
            text = choice["message"]["content"] if self.registered.chat else choice["text"]
            ended = choice.get("finish_reason") == "stop"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _Passing("answered with no completion") from None
        if not isinstance(text, str):
            raise _Passing("answered with no text")
        text = text.encode("utf-8", "replace").decode()  # half characters, as JSON can write them
        if manner.stop:
            text = text.lstrip().split(manner.stop, 1)[0]
        return text.strip(), ended


def digest(row: Any) -> str:
    """Return SHA-256, in hex, over what was declared of a registered endpoint: address, model,
    version, kind and limits.
    """
    return hashlib.sha256(canonical({"url": row.path, **row.endpoint})).hexdigest()


def inspect(row: Any, allowed: Sequence[Network]) -> dict[str, Any]:
    """Return public facts of a registered endpoint. Raises WriterError where its address may not be
    reached.

    Nothing is asked: that would cost.
    """
    try:
        addresses(read_url(row.path, allowed), allowed)
    except InvalidRequest as error:
        raise WriterError(f"path: {error.problems[0].problem}") from None
    except (OSError, UnicodeError):
        raise WriterError("path: its name does not resolve") from None
    return {"sha256": digest(row), **row.endpoint}


class _Status(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


async def _bounded(response: httpx2.Response) -> bytes:
    if response.status_code != 200:
        raise _Status(response.status_code)
    content = b""
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > MOST_ANSWER_BYTES:
            raise _Passing(f"answered with more than {MOST_ANSWER_BYTES:,} bytes")
    return content


def _used(answer: bytes, most: int) -> int:
    """Return the tokens that an answer says it used, where it says so plausibly; else the most."""
    usage = json.loads(answer).get("usage")
    used: object = usage.get("total_tokens") if isinstance(usage, dict) else None
    if not isinstance(used, int) or isinstance(used, bool):
        return most
    return used if 0 <= used <= most else most


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
