"""Public rules for what a model wrote: which texts are left out, and why.

They read the written text and the request for it alone, so that they cost nothing wherever the text
itself was paid for (docs/accounting.md, section 15).
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from accountant.core.template import pieces
from workers.data.words import words

_REFUSALS = re.compile(
    r"(?:i['’]m |i am |we['’]re )?(?:very |really |so "
    r")?sorry\b.{0,60}\b(?:can(?:no|['’])t|unable|not able)"
    r"|(?:i|we) (?:can(?:no|['’])t|am unable to|['’]m unable to|won['’]t) "
    r"(?:help|assist|do|comply|fulfil|write|rewrite|provide|generate|create)"
    r"|i['’]m (?:unable|not able) to|as an? (?:ai|artificial|(?:large )?language model)\b"
)
#: How chat models announce a text, or speak about the one that they were given, in place of
#: writing.
_PREFACES = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely)\b[^\w\n]{0,3})?"
    r"(?:here(?:['’]s| is| are) (?:an?|the|my|your|another|some|one)\b[^\n]{0,120}?:"
    r"|the (?:text|answer|sentence|paragraph)(?: is| reads)?:"
    r"|i(?:['’]m| am) (?:so |very )?(?:excited|thrilled|delighted|happy|glad) to share "
    r"(?:an?|some|my|the|this) \w+"
    r"|(?:the )?(?:original|rewritten|revised|new) (?:text|version|review|answer)\b[^\n]{0,40}?:)"
)
#: How they speak about the task.
_TALK = re.compile(
    r"(?:(?:this|the (?:above|following|given|new|original|rewritten|second)) "
    r"(?:text|passage|prompt) (?:is|was|should|must|has been|describes|discusses)\b"
    r"|(?:please )?(?:write|rewrite|provide|generate) (?:a|an|another|one more|the|your) "
    r"(?:new |similar |short )?(?:text|passage|version)\b"
    r"|i (?:hope this|have (?:written|rewritten)|will (?:write|rewrite))\b"
    r"|let me know (?:if|what)\b"
    r"|i(?:['’]m| am) (?:so |very |really )?(?:happy|glad) i could (?:help|assist)(?: you\b|[.!]))"
)
#: How assistants speak to whoever asked, anywhere in the opening.
_CHAT = re.compile(
    r"\b(?:an?|the|your) (?:helpful )?ai assistant\b|\bwhat topic would you like\b"
    r"|\bplease provide (?:me|the|your|more)\b"
    r"|\bi(?:['’]m| am|['’]d be| would be) (?:so |very |always )?(?:happy|glad|here|ready) "
    r"(?:you|to (?:help|assist|have you|offer my assistance|hear (?:that )?you))\b"
)
#: What only they say to a reader, anywhere; behind an opening quotation mark somebody else may.
_SERVICE = re.compile(
    r"(?<![\"“'‘])(?<![\"“'‘] )\b(?:"
    r"i(?:['’]m| am|['’]d be| would be| can) (?:\w+ )?"
    r"(?:(?:happy|glad|here|ready|excited|thrilled|delighted) to )?(?:help|assist|guide) you\b"
    r"|i(?:['’]m| am) (?:\w+ )?(?:happy|glad|excited|thrilled|delighted) to share\b"
    r"[^.!?\n]{0,80}\bwith you\b"
    r"|what(?:['’]s| is| are) your favou?rite\b|feel free to ask\b"
    r"|(?:how|what) (?:can|may) i (?:help|assist)\b)"
)
#: A refusal, a preface or talk is looked for in this much of a text.
_OPENING = 200
#: A text that begins with so many words of the request repeats it.
_ECHO = 4


def fault(text: str) -> str | None:
    """Return why a text is left out whatever was asked for, or None for one that is not."""
    if not any(map(str.isalnum, text)):
        return "empty"
    opening = text[:_OPENING].lower().lstrip(" \t\n*_#\"“'")
    if _REFUSALS.match(opening):
        return "refusal"
    if _PREFACES.match(opening):
        return "preface"
    talks = _TALK.match(opening) or _CHAT.search(opening) or _SERVICE.search(text.lower())
    return "talk about the task" if talks else None


def is_echo(text: str, request: str) -> bool:
    """Return True if a text begins with its request's first words, in any case."""
    own_words, request_words = (words(string, _ECHO) for string in (text, request))
    return len(own_words) == _ECHO and own_words == request_words


class Rules:
    """The rules for the texts of one job, and how many texts they left out."""

    def __init__(self, templates: Iterable[str]) -> None:
        """`templates`: those that the job writes after."""
        self.requests = [fixed for each in templates for fixed, _ in pieces(each) if fixed.strip()]
        self.written = 0
        self.left_out: Counter[str] = Counter()

    def publishes(self, text: str) -> bool:
        """Return True for a text that is published, and count it."""
        self.written += 1
        why = fault(text)
        if why is None and any(is_echo(text, request) for request in self.requests):
            why = "repeats the request"
        if why is not None:
            self.left_out[why] += 1
        return why is None

    def counts(self) -> dict[str, Any]:
        """Return how many texts were written, and how many left out for each reason."""
        return {"written": self.written, "left_out": dict(sorted(self.left_out.items()))}
