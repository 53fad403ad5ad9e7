"""First samples and variations: how many, what is asked, and the public rules that reject."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.mechanisms import aug_pe
from accountant.core.privacy.price import Terms
from tests.workers.evolution.writers import Words
from workers.data.public_text import vouch
from workers.evolution.variation import Made, Scribe, is_copy
from workers.generation.rules import fault, is_echo
from workers.generation.writer import Written
from workers.interface import Progress

TERMS = Terms(labels=("up", "down"))
LABELS = st.sampled_from(TERMS.labels)


def scribe(writer=None, **changes) -> Scribe:
    raw = {"noise_multiplier": 1.0, "samples": 5, "max_tokens": 8, **changes}
    parameters = aug_pe.MECHANISM.parse(raw, TERMS)
    return Scribe(parameters, TERMS, writer or Words(), Progress(0), np.random.default_rng(1))


def made(*texts: str) -> list[Made]:
    return [Made(vouch(text), True) for text in texts]


class Saying(Words):
    """Says these in turn, whatever it is asked, and then nothing but the last."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.texts = list(texts)

    def write(self, prompts, manner, each=1):
        for row, prompt in enumerate(prompts):
            for _ in range(each):
                self.asked.append(prompt)
                text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
                yield Written(vouch(text), True, row)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["rewrite", "continue", "blanks"]),
    st.lists(st.text("ab _", max_size=12), max_size=5),
    st.integers(0, 4),
    st.sampled_from(
        [("soup",), ("",), ("I'm sorry, I can't",), ("_", "tea"), ("tea", "cat", "door")]
    ),
)
def test_every_text_always_has_the_public_number_of_variations(varying, texts, each, words):
    """Whatever is written, rejected or copied; and progress moves by that number."""
    own = scribe(Words(words=words), varying=varying)
    found = own.varied("up", made(*texts), each)
    assert [len(one) for one in found] == [each] * len(texts)
    assert own.progress.done == each * len(texts)
    first = own.first("down", 3)
    assert len(first) <= 3
    assert not any(fault(one.text) for one in first)
    assert own.progress.done == each * len(texts) + 3


def test_copies_refusals_and_empty_texts_are_asked_for_again_and_then_the_source_stands_in():
    writer = Saying(
        "  ", "I'm sorry, but I can't help with that.", "SOUP, was cold!", "a warm tea", "..."
    )
    own = scribe(writer, varying="rewrite")
    (found,) = own.varied("up", made("Soup was cold"), 2)
    assert [each.text for each in found] == ["a warm tea", "Soup was cold"]
    assert len(writer.asked) == 5  # two, two, and one for the one that was still missing


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "…!?",
        "___",
        "I'm sorry, but I can't rewrite this text.",
        "I’m very sorry, I cannot do that",
        "Sorry, I am unable to continue.",
        "I cannot assist with this request.",
        "I am unable to provide a review",
        "Hey everyone, I'm Sarah, the AI assistant. How have you been?",
        "That is a fine question. I’m so glad you asked.",
        "I am a helpful AI assistant, trained to answer.",
        "I'm ready to help.",
        "Good. What topic would you like to discuss?",
        "I'd be happy to help you edit that sentence.",
        "There is no text. Please provide the text with your answer.",
        "I'm so glad I could help! Shopping is fun.",
        "Planning takes time, " * 12 + "and I’m here to assist you.",
        "Planning takes time, " * 12 + "and I can help you with that.",
        "I'm excited to help you with your shopping needs.",
        "I'm excited to share some amazing food with you!",
        "Food is art. What's your favorite type of food?",
        "Food is art. Feel free to ask more.",
        "Good morning. How can I help?",
        "I love soup. What can I help you with today?",
        "I'm happy to offer my assistance: soup is warm.",
        "I'm so glad to hear that you're enjoying our soup.",
        'The sentence: "The soup was cold."',
        "I'm thrilled to share a story about soup.",
        "As an AI language model, I have no opinion",
        "as a language model I do not eat",
        "  We can't help with that",
        "Here's a rewritten version of the review:\n\nThe soup was cold.",
        "Sure! Here is the review: great soup",
        '**"Here’s another take**: great soup',
        "The original review: great soup",
        'The text is: "A cold soup."',
        "Rewritten version (shop): great soup",
        "This text is about a cold soup",
        "The above passage describes a diner",
        "Please write another text of this kind",
        "I hope this helps!",
        "Let me know if you need more",
    ],
)
def test_what_is_no_text(text):
    assert fault(text)


@pytest.mark.parametrize(
    "text",
    [
        "Sorry service and cold soup.",
        "I can't say enough good things about them",
        "I cannot recommend this place",
        "The waiter said: I'm sorry, we can't help you",
        "I was unable to find a seat",
        "Here is the place to go for soup.",
        "Here are some of the best soups in town, and the bill was fair",
        "New version of an old diner",
        "The text is on the menu: soup",
        "Sure, the soup was cold",
        "I am so glad that we came, and the staff was happy to help",
        "She fell on the stairs, and I was glad I could help",
        "I'm glad I could help myself to soup next door.",
        'The waiter came. "How can I help?" Nothing was on the menu.',
        "The soup was cold. " * 12 + "“I can help you,” said the cook.",
        "I am excited to share that the soup was warm",
        "I'm glad to hear the soup was warm",
        "They can help you find a seat, and I can help with the menu",
        "This place is about as good as it gets",
        "I hope they warm their soup",
        "7",
        "ünïcode",
    ],
)
def test_what_is_a_text(text):
    assert fault(text) is None


def test_a_copy_has_the_same_words():
    assert is_copy("The soup, was COLD", "the soup was cold!")
    assert not is_copy("the soup was warm", "the soup was cold")
    assert not is_copy("the soup was", "the soup was cold")


def test_an_answer_that_repeats_the_request_is_rejected():
    request = "Rewrite this review in other words: "
    own = scribe(
        Saying("REWRITE this *review* in brief: soup", "a warm tea"), rewriting=request + "{text}"
    )
    (found,) = own.varied("up", made("Soup was cold"), 1)
    assert [each.text for each in found] == ["a warm tea"]
    own = scribe(
        Saying("A short review of a shop: soup", "a warm tea"), prompt="A short review of a diner"
    )
    assert [each.text for each in own.first("up", 1)] == ["a warm tea"]
    assert not is_echo("A text", "A text")
    # A continuation begins as its prefix does, whatever the prompt is.
    own = scribe(Saying("was cold"), varying="continue", prompt="The soup of today", kept=0.99)
    (found,) = own.varied("up", made("The soup of today was warm and thin"), 8)
    assert any(each.text == "The soup of today was cold" for each in found)


def test_continuations_keep_a_prefix_of_the_words_and_end_at_the_limit():
    writer = Words()
    own = scribe(writer, varying="continue", kept=0.5, max_tokens=6)
    source = "one two three four five six"
    (found,) = own.varied("up", made(source), 200)
    prefixes = {str(each.text).removeprefix("A text (up): ") for each in writer.asked}
    assert prefixes == {"one", "one two", "one two three"}
    assert all(not each.chat for each in writer.asked)
    for each in found:
        assert each.text.startswith("one")
        assert len(each.text.split()) <= 6
        assert each.complete or len(each.text.split()) == 6
    assert {each.complete for each in found} == {True, False}


def test_rewriting_shows_the_whole_text_and_blanks_only_words_that_stay():
    words = ["one", "two", "three", "four", "five"]
    for varying, kept in (("rewrite", 0.5), ("blanks", 0.3)):
        writer = Words()
        own = scribe(writer, varying=varying, kept=kept, rewriting="({label}) {text}")
        own.varied("down", made("one two three four five"), 100)
        shown = [str(each.text).removeprefix("(down) ").split() for each in writer.asked]
        if varying == "rewrite":
            assert all(each == words for each in shown)
            continue
        assert all(
            word in ("_", own_word)
            for each in shown
            for word, own_word in zip(each, words, strict=True)
        )
        share = np.mean([word != "_" for each in shown for word in each])
        assert 0.22 < share < 0.38


def test_an_answer_that_still_has_blanks_is_rejected():
    own = scribe(
        Saying("the _ was cold", "the ___ was cold", "a snake_case name"), varying="blanks"
    )
    (found,) = own.varied("up", made("the soup was cold"), 1)
    assert [each.text for each in found] == ["a snake_case name"]


def test_chat_is_asked_as_the_parameters_say():
    for prompting in ("chat", "plain"):
        writer = Words()
        own = scribe(writer, prompting=prompting)
        own.first("up", 1)
        own.varied("up", made("soup"), 1)
        assert {each.chat for each in writer.asked} == {prompting == "chat"}
