"""Local writers and endpoints: the same protocol, the same texts, public prompts only."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pydantic import SecretStr

from accountant.core.errors import Cancelled
from accountant.core.webhook_rules import networks
from workers import models
from workers.data.public_text import PublicPrompt, PublicText, constant, joined, vouch
from workers.data.records import Record
from workers.generation import endpoint as endpoints
from workers.generation.endpoint import Endpoint, Registered
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, WriterError, answers
from workers.sample import MODEL_DIR

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
KEY = "sk-not-to-be-seen"
MANNER = Manner(12, 0.0)
TEXTS = [
    "The room was",
    "We had lunch at the hotel and the waiter",
    "A long story about the lift, which did not work, and the stairs, which were steep. The",
    "The",
    "My phone arrived broken, so",
]
PROMPTS = [PublicPrompt(vouch(text)) for text in TEXTS]


@pytest.fixture(scope="module")
def model():
    return models.load(MODEL_DIR, models.digest(MODEL_DIR))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(endpoints, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(endpoints, "MOST_WAIT_SECONDS", 0.05)


def at(served, behaviour: str = "good", **changes) -> Endpoint:
    declared = {"name": "far", "url": served.url(behaviour), "model": "sample", "chat": False}
    limits = {"requests": 1000, "tokens": 10**6, **changes}
    return Endpoint(Registered(**declared, **limits), SecretStr(KEY), networks("127.0.0.0/8"), 3.0)


# --- local --------------------------------------------------------------------------------------


def plainly(model, text: str) -> str:
    """Return the text that the model writes alone, token by token."""
    ids = [*([model.tokenizer.bos_token_id] if model.tokenizer.bos_token_id is not None else [])]
    ids += model.tokenizer.encode(text, add_special_tokens=False)
    start = len(ids)
    with torch.inference_mode():
        for _ in range(MANNER.max_tokens):
            token = int(model.network(torch.tensor([ids])).logits[0, -1].argmax())
            if token in model.end_tokens:
                break
            ids.append(token)
    return model.tokenizer.decode(ids[start:], skip_special_tokens=True).strip()


@pytest.mark.parametrize(("memory", "each"), [(None, 3), (1, 1)])
def test_different_prompts_share_rows_and_each_gets_its_own_text(model, memory, each):
    """With room for all, and for a few rows that are refilled as texts end."""
    chosen = model if memory is None else replace(model, memory_bytes=memory)
    writer = LocalWriter(chosen, generator(model.device, 1))
    wanted = [plainly(model, text) for text in TEXTS]
    many = PROMPTS * 2
    found: dict[int, list[str]] = {}
    for text in writer.write(many, MANNER, each):
        found.setdefault(text.row, []).append(text.text)
    assert found == {row: [wanted[row % len(TEXTS)]] * each for row in range(len(many))}


def test_a_prompt_longer_than_the_context_loses_its_beginning(model):
    long = PublicPrompt(vouch("The room was clean. " * 500))
    (text,) = answers(LocalWriter(model, generator(model.device, 1)), [long], MANNER)
    assert isinstance(text, PublicText)


# --- an endpoint --------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["good", "flaky/2"])
def test_an_endpoint_and_a_local_writer_write_the_same(model, served, behaviour):
    local = answers(LocalWriter(model, generator(model.device, 1)), PROMPTS, MANNER)
    far = at(served, behaviour)
    assert answers(far, PROMPTS, MANNER) == local
    asked = served.asked(behaviour.split("/")[0])
    assert asked[-1]["headers"]["authorization"] == f"Bearer {KEY}"
    assert asked[-1]["body"]["model"] == "sample"
    assert KEY not in repr(far)


def test_chat_prompts_go_to_the_chat_address(served):
    far = replace(at(served), registered=replace(at(served).registered, chat=True))
    (text,) = answers(far, [PublicPrompt(vouch("The room was"), chat=True)], MANNER)
    assert text
    assert served.asked("good")[-1]["path"] == "/good/chat/completions"


@pytest.mark.parametrize(
    ("behaviour", "reason", "tries"),
    [
        ("dead", "could not be reached", endpoints.TRIES),
        ("hangs", "did not answer within", endpoints.TRIES),
        ("drips", "did not answer within", endpoints.TRIES),
        ("rubbish", "no completion", endpoints.TRIES),
        ("empty", "no text", endpoints.TRIES),
        ("endless", "more than", endpoints.TRIES),
        ("refuses/503", "answered 503", endpoints.TRIES),
        ("refuses/401", "answered 401", 1),
        ("redirects", "answered 302", 1),
    ],
)
def test_an_endpoint_that_fails_is_asked_a_few_times_and_named(served, behaviour, reason, tries):
    far = replace(at(served, behaviour), seconds=0.5)
    before, begun = len(served.asked(behaviour.split("/")[0])), time.monotonic()
    with pytest.raises(WriterError, match=reason) as caught:
        answers(far, PROMPTS[:1], MANNER)
    assert "'far'" in str(caught.value)
    assert KEY not in str(caught.value)
    assert "room" not in str(caught.value)
    assert time.monotonic() - begun < 20
    assert len(served.asked(behaviour.split("/")[0])) - before == tries
    assert far.spending.requests == tries  # a try that failed may have been billed there


def test_nothing_is_sent_beyond_the_spending_limit(served):
    far = at(served, "few", requests=3)
    with pytest.raises(WriterError, match="spending limit of 3 requests"):
        answers(far, PROMPTS, MANNER)
    assert len(served.asked("few")) <= 3
    far = at(served, "short", tokens=MANNER.max_tokens + len(TEXTS[0]) + endpoints.TEMPLATE_TOKENS)
    answers(far, PROMPTS[:1], MANNER)
    assert far.spending.tokens == 30  # what the answer says
    with pytest.raises(WriterError, match="spending limit"):
        answers(far, PROMPTS[:1], MANNER)
    assert len(served.asked("short")) == 1
    assert far.seeded(1).spending is far.spending


def test_inside_addresses_are_reached_only_where_the_operator_allows_it(served):
    for allowed in ("", "10.0.0.0/8"):
        far = replace(at(served), allowed=networks(allowed))
        with pytest.raises(WriterError, match="far"):
            answers(far, PROMPTS[:1], MANNER)


def test_a_job_that_is_cancelled_waits_for_no_endpoint(served):
    def check() -> None:
        raise Cancelled("cancelled")

    begun = time.monotonic()
    with pytest.raises(Cancelled):
        answers(replace(at(served, "hangs"), seconds=60.0, check=check), PROMPTS, MANNER)
    assert time.monotonic() - begun < 10


# --- public by type -----------------------------------------------------------------------------

PRIVATE = Record("u1", None, "A patient's own words")


@pytest.mark.parametrize(
    "make",
    [
        lambda: PublicPrompt(PRIVATE.text),
        lambda: PublicPrompt("typed in"),
        lambda: PublicPrompt(constant("About: ") + PRIVATE.text),
        lambda: PublicPrompt(constant("{record}").format(record=PRIVATE.text)),
        lambda: PublicPrompt(joined(constant("About: "), PRIVATE.text)),
        lambda: PublicText(PRIVATE.text),
        lambda: PublicPrompt(PublicText(PRIVATE.text)),
    ],
)
def test_no_record_becomes_a_prompt(make):
    with pytest.raises(TypeError, match="public"):
        make()


def test_no_writer_takes_anything_but_a_prompt(model, served):
    class Pretends:
        text, chat = PRIVATE.text, False

    for writer in (LocalWriter(model, generator(model.device, 1)), at(served)):
        before = len(served.asked("good"))
        for prompt in (PRIVATE, PRIVATE.text, Pretends()):
            with pytest.raises(TypeError, match="PublicPrompt"):
                list(writer.write([prompt], MANNER))
        assert len(served.asked("good")) == before


def test_the_type_checker_refuses_a_record(tmp_path):
    program = tmp_path / "leak.py"
    program.write_text(
        "from workers.data.public_text import PublicPrompt, constant\n"
        "from workers.data.records import Record\n"
        "def leak(record: Record) -> list[PublicPrompt]:\n"
        "    fine = PublicPrompt(constant('a text'))\n"
        "    return [fine, PublicPrompt(record.text)]\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert 'leak.py:5: error: Argument 1 to "PublicPrompt" has incompatible type "str"' in found, (
        found
    )
    assert found.count("leak.py") == 1
