"""The self-test "one record moves one batch" finds models for which that is not so."""

import pytest
import torch

from tests.workers.engine.test_engine import REAL, SHAPE, family
from workers.engine import decoder as decoding
from workers.engine.sizing import Sizes
from workers.engine.steadiness import Unsteady, check_loaded, check_steady


def test_a_model_whose_rows_act_on_one_another_is_found(monkeypatch):
    """As experts do, whose passes have as many rows as tokens choose them: the last digit is
    enough.
    """
    model, _ = family("llama")

    def mixing(self, store, masks, positions, ids=None, embedded=None):
        states = REAL(self, store, masks, positions, ids, embedded)
        return states * (1 + 1e-6 * ids.float().mean())

    monkeypatch.setattr(decoding.Decoder, "_forward", mixing)
    with pytest.raises(Unsteady, match="ask without amplification"):
        check_steady(model, SHAPE, Sizes(rows=16, reading=16, batches=1))


def test_a_model_in_which_a_short_record_acts_on_others_is_found(monkeypatch):
    """Its removal moves nothing here; another one in its place does."""
    model, _ = family("llama")

    def acting(self, store, masks, positions, ids=None, embedded=None):
        states = REAL(self, store, masks, positions, ids, embedded)
        return states * (1 + 1e-6 * (ids[0].count_nonzero() == 1)) if ids.shape[1] > 1 else states

    monkeypatch.setattr(decoding.Decoder, "_forward", acting)
    with pytest.raises(Unsteady, match="goes or changes"):
        check_loaded(model)


@pytest.mark.parametrize("when", ["reading", "writing"])
def test_a_model_in_which_a_rows_place_matters_is_found(monkeypatch, when):
    """A record that goes moves those behind it by a row; another in its place moves none."""
    model, _ = family("llama")

    def placed(self, store, masks, positions, ids=None, embedded=None):
        states = REAL(self, store, masks, positions, ids, embedded)
        places = torch.arange(len(states)).reshape(-1, *[1] * (states.dim() - 1))
        return states * (1 + 1e-5 * places) if (ids.shape[1] > 1) == (when == "reading") else states

    monkeypatch.setattr(decoding.Decoder, "_forward", placed)
    with pytest.raises(Unsteady, match="goes or changes"):
        check_loaded(model)
