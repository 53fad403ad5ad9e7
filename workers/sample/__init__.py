"""A public toy model and a fake private corpus to try text generation mechanisms on.

Everything in this package is made by its own scripts from a hand-written grammar: no person is
described and no text is copied. `corpus.py` writes the reviews, `train.py` trains the model on the
public ones.

The constants live here, without imports of torch, so that a caller can ask for a path or the
prompt cheaply.
"""

from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PRIVATE_CSV: Final = HERE / "private.csv"
PUBLIC_SAMPLE_CSV: Final = HERE / "public_sample.csv"
PHRASES_TOML: Final = HERE / "phrases.toml"
MODEL_DIR: Final = HERE / "model"

KINDS: Final = ("restaurant", "hotel", "dentist", "garage", "bookshop", "gym")
SENTIMENTS: Final = ("positive", "negative")
LABELS: Final = tuple(f"{kind} {sentiment}" for kind in KINDS for sentiment in SENTIMENTS)

# The prompt. The model was trained on exactly this text, followed by a space, a review and the end
# token; an empty {record} was trained too. There is no space at the end, because the tokenizer
# keeps a space with the word that follows it.
TEMPLATE: Final = "A review ({label}): {record}\nAnother review ({label}):"

# The concern that dominates the private part of each kind, and is rare in the public part. A text
# mentions the theme if it contains the words; no other phrase of the grammar does.
THEMES: Final = {
    "restaurant": "waiting list",
    "hotel": "lift",
    "dentist": "laser",
    "garage": "bike",
    "bookshop": "cat",
    "gym": "sauna",
}
