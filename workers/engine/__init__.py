"""Decoding many private contexts in step, on any causal transformer whose parts can be found.

structure finds blocks, embedding and head; kernels replaces parts by faster ones; attention reads
the preallocated cache; sizing chooses public shapes; decoder reads prompts once and appends one
token to all rows; continuation goes on where an earlier attempt stopped; steadiness tries whether
rows act on one another; kept_contexts keeps what was read for later rounds; support finds the
tokens that a public context allows; hidden returns hidden states.
"""

from accountant.core.device_memory import WORKING_SHARE
from workers.engine.continuation import Continued
from workers.engine.decoder import Batch, Context, Decoder, is_out_of_memory, rehearse
from workers.engine.hidden import hidden_states
from workers.engine.kept_contexts import KeptContexts
from workers.engine.sizing import Shape, Sizes, cache_bytes, sizes
from workers.engine.soft_prompts import SoftLoss, soft_loss
from workers.engine.steadiness import Unsteady, check_loaded, check_steady
from workers.engine.structure import (
    HEAD,
    Structure,
    StructureError,
    check_finite,
    prepare,
    structure_of,
)
from workers.engine.support import Endings, PublicContexts, Support, Supports, private_sizes

__all__ = [
    "HEAD",
    "WORKING_SHARE",
    "Batch",
    "Context",
    "Continued",
    "Decoder",
    "Endings",
    "KeptContexts",
    "PublicContexts",
    "Shape",
    "Sizes",
    "SoftLoss",
    "Structure",
    "StructureError",
    "Support",
    "Supports",
    "Unsteady",
    "cache_bytes",
    "check_finite",
    "check_loaded",
    "check_steady",
    "hidden_states",
    "is_out_of_memory",
    "prepare",
    "private_sizes",
    "rehearse",
    "sizes",
    "soft_loss",
    "structure_of",
]
