"""The decoding engine against reading every prompt again, in float64, for every family."""

from dataclasses import replace

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.device_memory import WORKING_SHARE
from tests.workers.engine.families import (
    BRANCHES,
    COMMON,
    CONTEXT,
    FAMILIES,
    LAYERS,
    VOCABULARY,
    WIDTH,
    family,
)
from workers.engine import (
    HEAD,
    Batch,
    Decoder,
    Shape,
    Sizes,
    StructureError,
    hidden_states,
    prepare,
    rehearse,
    sizes,
)
from workers.engine import decoder as decoding
from workers.engine.sizing import TILE, pass_rows, reading_bytes
from workers.engine.steadiness import check_steady

pytestmark = pytest.mark.slow

SHAPE = Shape(prefix=5, rest=20, text=8)
LENGTHS = (1, 7, 20, 12, 20, 3, 9)
PREFIX = [11, 12, 13, 14]


def contexts(lengths=LENGTHS, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(0, VOCABULARY, (length,), generator=generator).tolist() for length in lengths
    ]


def gathered(given) -> dict[int, torch.Tensor]:
    """The values of each batch, in the order of its contexts."""
    found: dict[int, list[torch.Tensor]] = {}
    for batch, values in given:
        found.setdefault(batch, []).append(values)
    return {batch: torch.cat(values) for batch, values in found.items()}


def naive(plain, batch: Batch, text: list[int]) -> torch.Tensor:
    """Logits of the next token, each context read from its beginning in one plain float64 pass."""
    whole = [[*batch.prefix, *each, *text] for each in batch.contexts]
    return torch.stack([plain(torch.tensor([ids])).logits[0, -1] for ids in whole])


def follow(model, plain, batches: list[Batch], chosen: Sizes, atol: float = 1e-5) -> None:
    """Several texts of each batch, with ends at different steps, compared at every step."""
    decoder = Decoder(model, batches, SHAPE, chosen)
    texts: dict[int, list[int]] = {number: [] for number in range(len(batches))}

    def compare(given) -> None:
        for number, values in gathered(given).items():
            expected = naive(plain, batches[number], texts[number])
            assert values.dtype == torch.float32
            assert torch.allclose(values.double(), expected, rtol=0, atol=atol), (
                number,
                texts[number],
            )

    compare(decoder.read())
    for round_, ending in enumerate([None, 0, None, 1, None, None, 0, None]):
        if ending in texts:
            decoder.restart(ending)
            texts[ending] = []
        # Batch 1 stands still once while the others go on.
        tokens = {n: (13 * round_ + 5 * n) % VOCABULARY for n in texts if (round_, n) != (2, 1)}
        for number, token in tokens.items():
            texts[number].append(token)
        compare(decoder.step(tokens))


CASES = {
    "one pass": ([Batch(contexts(), PREFIX)], Sizes(rows=8, reading=8, batches=1)),
    "chunks": ([Batch(contexts(), PREFIX)], Sizes(rows=2, reading=1, batches=1)),
    "no prefix": ([Batch(contexts())], Sizes(rows=4, reading=3, batches=1)),
    "several batches": (
        [
            Batch(contexts((3, 20)), PREFIX),
            Batch(contexts((9, 1, 17), 1)),
            Batch([]),
            Batch([[5]], [1, 2]),
        ],
        Sizes(rows=4, reading=4, batches=4),
    ),
}


def each_family(case: object, others: list[object]) -> list[tuple[str, object]]:
    """A case for every family, and the others for one of each way that the engine has."""
    return [(name, case) for name in FAMILIES] + [(n, each) for n in BRANCHES for each in others]


@pytest.mark.parametrize(
    ("name", "case"), each_family("several batches", ["one pass", "chunks", "no prefix"])
)
def test_logits_are_those_of_reading_everything_again(name, case):
    model, plain = family(name)
    follow(model, plain, *CASES[case])


def test_a_batch_that_stands_still_is_not_disturbed_by_a_shorter_one_in_its_pass():
    model, plain = family("llama")
    batches = [Batch(contexts((4, 9)), PREFIX), Batch(contexts((6,), 1))]
    decoder = Decoder(model, batches, SHAPE, Sizes(4, 4, 2))
    gathered(decoder.read())
    for token in (5, 6, 7):
        gathered(decoder.step({0: token, 1: token}))
    decoder.restart(1)
    gathered(decoder.step({1: 8}))  # batch 0 stands at its third token
    values = gathered(decoder.step({0: 9}))[0]
    assert torch.allclose(
        values.double(), naive(plain, batches[0], [5, 6, 7, 9]), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "case"), each_family((4, False), [(1, False), (4, True), (1, True)]), ids=str
)
def test_a_text_that_is_appended_at_once_is_as_if_token_by_token(name, case):
    """Texts of several lengths, one of more tokens than prompts are read at once, and a batch
    without any; `case`: (prompts read at once, whether passes have a fixed shape).
    """
    (reading, fixed), (model, plain) = case, family(name)
    shape = replace(SHAPE, rest=5)
    batches = [
        Batch(contexts((3, 5)), PREFIX),
        Batch(contexts((4,), 1)),
        Batch(contexts((2, 1), 2)),
    ]
    decoder = Decoder(model, batches, shape, Sizes(4, reading, 3), fixed=fixed)
    gathered(decoder.read())
    texts = {0: [7, 8, 9], 2: [(3 * number) % VOCABULARY for number in range(shape.text - 1)]}
    atol = {"rtol": 0, "atol": 1e-5}

    def compare(given) -> None:
        for number, values in gathered(given).items():
            expected = naive(plain, batches[number], texts[number])
            assert torch.allclose(values.double(), expected, **atol), number

    compare(decoder.append(texts))
    texts[0].append(11)
    texts[1] = [12]
    texts[2].append(13)
    compare(decoder.step({0: 11, 1: 12, 2: 13}))
    decoder.restart(0)
    texts[0] = [14]
    compare(decoder.step({0: 14}))


def test_a_beginning_longer_than_a_text_is_refused():
    model, _ = family("llama")
    decoder = Decoder(model, [Batch(contexts((3,)))], SHAPE, Sizes(1, 1, 1))
    gathered(decoder.read())
    with pytest.raises(ValueError, match="public length"):
        list(decoder.append({0: [1] * (SHAPE.text + 1)}))


def test_a_coarse_type_stays_close_and_gives_float32():
    model, plain = family("llama", torch.bfloat16)
    follow(model, plain, *CASES["several batches"], atol=0.25)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_on_a_gpu(name):
    model, plain = family(name)
    follow(prepare(model.network.cuda()), plain, *CASES["several batches"], atol=1e-4)


# --- shapes -------------------------------------------------------------------------------------


def steps_of(model, batches: list[Batch], chosen: Sizes, batch: int) -> torch.Tensor:
    """Logits of one batch for the first tokens of a text: (steps, contexts, vocabulary)."""
    decoder = Decoder(model, batches, SHAPE, chosen)
    found = [gathered(decoder.read())[batch]]
    for token in (4, 40, 44):
        found.append(gathered(decoder.step(dict.fromkeys(range(len(batches)), token)))[batch])
    return torch.stack(found)


@pytest.mark.parametrize(
    ("name", "others"), each_family("in another batch", ["removed", "longer", "in another order"])
)
def test_a_contexts_logits_do_not_depend_on_the_others(name, others):
    """Bit for bit, on a CPU, in passes of one public shape: whatever shares a pass with a
    context.
    """
    model, _ = family(name)
    chosen = Sizes(rows=8, reading=8, batches=2)
    own, rest = contexts((7, 12)), contexts((3, 20, 9), 1)
    alone = [Batch([*own, *rest], PREFIX), Batch(contexts((4,), 2))]
    changed = {
        "removed": [Batch(own, PREFIX), Batch([])],
        "longer": [Batch([*own, *contexts((20, 20, 20, 20), 3)], PREFIX), Batch(contexts((2,), 4))],
        "in another order": [Batch([*own, *rest[::-1]], PREFIX), Batch(contexts((4,), 2))],
        "in another batch": [Batch(own, PREFIX), Batch([*rest, *contexts((20,), 5)], PREFIX[:2])],
    }[others]
    before, after = steps_of(model, alone, chosen, 0), steps_of(model, changed, chosen, 0)
    assert torch.equal(before[:, :2], after[:, :2])


def test_a_context_in_another_place_of_a_pass_has_the_same_logits():
    """Removing a context moves those behind it up by one row; on this CPU's kernels not even the
    last bit of theirs changes, in passes of a whole tile of rows.
    """
    model, _ = family("llama")
    chosen, own = Sizes(rows=16, reading=16, batches=1), contexts((7, 12, 3, 20))
    everyone = steps_of(model, [Batch(own, PREFIX)], chosen, 0)
    without = steps_of(model, [Batch(own[1:], PREFIX)], chosen, 0)
    assert torch.equal(everyone[:, 1:], without)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("room", [2, 5])
def test_a_record_that_goes_moves_no_bit_of_the_others_however_little_memory_there_is(room, dtype):
    """Prompts are read in passes of their own size. One record less moves those behind it to
    another place in a pass, and must not move them into a pass of another shape or into half a
    tile. (Models as narrow as FAMILIES don't show it.) `room`: prompts whose reading fits into the
    memory.
    """
    torch.manual_seed(7)
    wide = {**COMMON, "hidden_size": 192, "intermediate_size": 520}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**wide)).to(dtype).eval()
    model, shape = prepare(network.requires_grad_(False)), Shape(prefix=4, rest=41, text=4)
    memory = WORKING_SHARE * (room * reading_bytes(network, shape) + 1)
    chosen = sizes(network, shape, contexts=24, batches=2, memory=memory)
    others, mine = contexts((7, 41, 3, 20) * 3, 1), contexts((9, 41, 1, 16) * 4, 2)

    def logits(private: list[list[int]]) -> torch.Tensor:
        decoder = Decoder(model, [Batch(private, PREFIX), Batch(mine, PREFIX)], shape, chosen)
        return torch.stack([gathered(decoder.read())[1], gathered(decoder.step({0: 5, 1: 5}))[1]])

    assert torch.equal(logits(others), logits(others[1:])), chosen


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 400), st.integers(1, 300), st.integers(0, 2**32))
def test_passes_are_of_one_shape_whatever_the_memory(prefix, rest, many, memory):
    """Whole tiles, or single rows: then no number of records leaves a shorter pass at the end."""
    model, _ = family("llama")
    chosen = sizes(model.network, Shape(prefix, rest, 8), contexts=many, batches=4, memory=memory)
    assert chosen.rows % TILE == 0
    assert chosen.rows % chosen.reading == 0
    assert chosen.reading == 1 or chosen.reading % TILE == 0


def test_a_context_too_long_is_cut_and_an_empty_one_is_nan():
    model, plain = family("llama")
    long = contexts((50,))[0]
    decoder = Decoder(model, [Batch([long, [], [5]])], SHAPE, Sizes(4, 4, 1))
    for text in ([], [9]):
        values = gathered(decoder.step({0: text[-1]}) if text else decoder.read())[0]
        assert torch.isnan(values[1]).all()
        expected = naive(plain, Batch([long[-SHAPE.rest :], [5]]), text)
        assert torch.allclose(values[[0, 2]].double(), expected, atol=1e-5)


def test_a_text_ends_at_its_public_length():
    model, _ = family("llama")
    decoder = Decoder(model, [Batch([[1]])], Shape(0, 3, 1), Sizes(1, 1, 1))
    gathered(decoder.read())
    gathered(decoder.step({0: 5}))
    with pytest.raises(ValueError, match="public length"):
        decoder.step({0: 5})


# --- what a price of secret batches asks for ----------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), each_family(torch.float32, [torch.bfloat16]))
def test_on_a_cpu_a_record_that_goes_moves_no_digit(name, dtype):
    model, _ = family(name, dtype)
    check_steady(model, SHAPE, Sizes(rows=16, reading=16, batches=1))


def test_memory_that_is_too_small_is_found_before_anything_is_read(monkeypatch):
    model, _ = family("llama")
    monkeypatch.setattr(decoding.Decoder, "_forward", failing_above(3, OUT_OF_MEMORY[0]))
    with pytest.raises(decoding.PassTooLarge):
        check_steady(model, SHAPE, Sizes(rows=16, reading=16, batches=1))


# --- memory -------------------------------------------------------------------------------------


def failing_above(rows: int, error: Exception):
    """A forward pass that has room for so many rows only, and fails when half of it is done."""

    def forward(self, store, masks, positions, ids=None, embedded=None):
        if len(positions) > rows:
            seen = []

            def fail(_stream) -> None:
                seen.append(1)
                raise error

            with self.model.watched({LAYERS // 2: fail}):
                REAL(self, store, masks, positions, ids, embedded)
        return REAL(self, store, masks, positions, ids, embedded)

    return forward


REAL = Decoder._forward
OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_where_memory_runs_out_passes_get_smaller(monkeypatch, error):
    model, plain = family("olmo3")
    monkeypatch.setattr(decoding.Decoder, "_forward", failing_above(3, error))
    follow(
        model,
        plain,
        [Batch(contexts()), Batch(contexts((4, 4), 1))],
        Sizes(rows=12, reading=12, batches=2),
    )


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_passes_whose_shape_is_fixed_fail_rather_than_shrink(monkeypatch, error):
    """Smaller passes move last digits of all units in them, which a price by allocation does not
    cover.
    """
    model, _ = family("llama")
    monkeypatch.setattr(decoding.Decoder, "_forward", failing_above(3, error))
    decoder = Decoder(model, [Batch(contexts())], SHAPE, Sizes(8, 8, 1), fixed=True)
    with pytest.raises(decoding.PassTooLarge, match="a pass of 8 contexts, a public number"):
        gathered(decoder.read())


@pytest.mark.parametrize("error", [OUT_OF_MEMORY[0], RuntimeError("another thing went wrong")])
def test_what_smaller_passes_do_not_mend_goes_to_the_caller(monkeypatch, error):
    model, _ = family("llama")
    monkeypatch.setattr(decoding.Decoder, "_forward", failing_above(0, error))
    decoder = Decoder(model, [Batch(contexts())], SHAPE, Sizes(8, 8, 1))
    with pytest.raises(type(error)):
        gathered(decoder.read())


def test_sizes_follow_from_public_numbers_and_the_memory():
    model, _ = family("llama")
    ample = sizes(model.network, SHAPE, contexts=24, batches=10, memory=2**32)
    # 240 contexts in three passes
    assert (ample.batches, ample.rows, ample.reading) == (10, 80, 80)
    # A context takes 33 columns of 512 bytes and 388 bytes of logits; 7/8 of the memory is for
    # these.
    tight = sizes(model.network, SHAPE, contexts=24, batches=10, memory=1_000_000)
    assert (tight.batches, tight.rows) == (2, 48)
    assert 1 <= tight.reading < tight.rows
    least = sizes(model.network, SHAPE, contexts=24, batches=10, memory=1)
    assert (least.batches, least.rows, least.reading) == (1, 16, 1)


@pytest.mark.parametrize(
    ("contexts", "rows"), [(1, 16), (64, 64), (65, 80), (96, 96), (97, 64), (128, 64), (200, 80)]
)
def test_passes_are_even_and_of_whole_tiles(contexts, rows):
    """65 contexts in passes of 64 would be two, and the second nearly empty."""
    assert pass_rows(contexts, most=96) == rows


# --- hidden states, steering, soft prompts
# ---------------------------------------------------------


def plain_states(
    plain, ids: torch.Tensor | None = None, embeds: torch.Tensor | None = None, bias=None
):
    """Outputs of every block and what the head receives, by hooks on the plain model; and the
    logits.
    """
    blocks = next(
        m for m in plain.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == LAYERS
    )
    seen: dict[object, torch.Tensor] = {}
    hooks = []
    for number, block in enumerate(blocks):

        def hook(_m, _i, output, number=number):
            stream = output[0] if isinstance(output, tuple) else output
            moved = stream if bias is None or number not in bias else stream + bias[number].double()
            seen[number] = moved[0]
            return (moved, *output[1:]) if isinstance(output, tuple) else moved

        hooks.append(block.register_forward_hook(hook))
    head = plain.get_output_embeddings()
    hooks.append(
        head.register_forward_pre_hook(lambda _m, inputs: seen.update({HEAD: inputs[0][0]}))
    )
    logits = plain(input_ids=ids, inputs_embeds=embeds).logits[0, -1]
    for hook in hooks:
        hook.remove()
    return seen, logits


BIAS = {1: torch.linspace(-1, 1, WIDTH), 2: torch.linspace(2, 0, WIDTH)}


@pytest.mark.parametrize(("name", "bias"), each_family(BIAS, [None]))
def test_hidden_states_are_those_of_the_plain_model(name, bias):
    model, plain = family(name)
    own, layers = contexts((20, 5, 9, 14)), [0, 2, 3, HEAD]
    spans = [(3, 20), (0, 1), (4, 9), (2, 12)]
    chosen = Sizes(rows=3, reading=2, batches=1)
    means = torch.stack([*hidden_states(model, own, layers, SHAPE, chosen, PREFIX, spans, bias)])
    lasts = torch.stack([*hidden_states(model, own, layers, SHAPE, chosen, PREFIX, steering=bias)])
    assert means.shape == lasts.shape == (4, len(layers), WIDTH)
    for row, (context, (start, stop)) in enumerate(zip(own, spans, strict=True)):
        seen, _ = plain_states(plain, torch.tensor([[*PREFIX, *context]]), bias=bias)
        before = len(PREFIX)
        for column, layer in enumerate(layers):
            mean = seen[layer][before + start : before + stop].mean(dim=0)
            assert torch.allclose(means[row, column].double(), mean, rtol=0, atol=1e-5)
            assert torch.allclose(lasts[row, column].double(), seen[layer][-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_steering_moves_every_position_and_is_gone_afterwards(name):
    model, plain = family(name)
    batch = Batch(contexts((4, 20)), PREFIX)
    before = gathered(Decoder(model, [batch], SHAPE, Sizes(2, 2, 1)).read())[0]
    decoder = Decoder(model, [batch], SHAPE, Sizes(2, 2, 1), steering=BIAS)
    for text in ([], [3], [3, 8]):
        values = gathered(decoder.step({0: text[-1]}) if text else decoder.read())[0]
        for row, context in enumerate(batch.contexts):
            _, expected = plain_states(plain, torch.tensor([[*PREFIX, *context, *text]]), bias=BIAS)
            assert torch.allclose(values[row].double(), expected, rtol=0, atol=1e-5)
    assert torch.equal(before, gathered(Decoder(model, [batch], SHAPE, Sizes(2, 2, 1)).read())[0])


@pytest.mark.parametrize("name", FAMILIES)
def test_soft_prompts_are_the_models_input_embeddings(name):
    model, plain = family(name)
    soft = torch.randn((6, WIDTH), generator=torch.Generator().manual_seed(1))
    batch = Batch([soft, contexts((9,))[0]], PREFIX)
    decoder = Decoder(model, [batch], SHAPE, Sizes(4, 4, 1))
    embed = plain.get_input_embeddings()
    for text in ([], [3]):
        values = gathered(decoder.step({0: text[-1]}) if text else decoder.read())[0]
        around = (
            embed(torch.tensor(PREFIX)),
            soft.double(),
            embed(torch.tensor(text, dtype=torch.long)),
        )
        expected = plain(inputs_embeds=torch.cat(around).unsqueeze(0)).logits[0, -1]
        assert torch.allclose(values[0].double(), expected, rtol=0, atol=1e-5)
        expected = naive(plain, Batch(batch.contexts[1:], PREFIX), text)[0]
        assert torch.allclose(values[1].double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_head_on_hidden_states_gives_the_logits(name):
    """A mechanism that adds noise to the mean hidden state before the head needs this."""
    model, _ = family(name)
    batch = Batch(contexts((4, 20)), PREFIX)
    plain = Decoder(model, [batch], SHAPE, Sizes(2, 2, 1))
    inner = Decoder(model, [batch], SHAPE, Sizes(2, 2, 1), hidden=True)
    for text in ([], [3]):
        logits, states = (
            gathered(each.step({0: text[-1]}) if text else each.read())[0]
            for each in (plain, inner)
        )
        assert states.shape == (2, WIDTH)
        with torch.inference_mode():
            assert torch.allclose(logits, model.logits(states), atol=1e-6)


def test_a_layer_that_is_not_there_is_refused():
    model, _ = family("llama")
    with pytest.raises(StructureError, match="it has 0 to 3"):
        list(hidden_states(model, [[1]], [LAYERS], SHAPE, Sizes(1, 1, 1)))
    decoder_of = {LAYERS: torch.zeros(WIDTH)}
    with pytest.raises(StructureError, match="it has 0 to 3"):
        Decoder(model, [Batch([[1]])], SHAPE, Sizes(1, 1, 1), steering=decoder_of)


def test_a_plain_call_of_a_prepared_model_is_as_before():
    """Other code may call the model itself: with padding, windows and caps its answers are the
    plain ones.
    """
    for name in FAMILIES:
        model, plain = family(name)
        ids = torch.tensor([contexts((12,))[0]] * 2)
        mask = torch.ones_like(ids)
        mask[1, 9:] = 0
        given = {"input_ids": ids, "attention_mask": mask}
        ours, theirs = model.network(**given).logits, plain(**given).logits
        assert torch.allclose(ours[0, -1].double(), theirs[0, -1], atol=1e-5)
        assert torch.allclose(ours[1, 8].double(), theirs[1, 8], atol=1e-5)


def test_a_model_whose_head_does_more_is_refused():
    model, _ = family("llama")
    model.network.lm_head.register_forward_hook(lambda _m, _i, output: output * 2)
    model.network.base_model.register_forward_hook(lambda *_: None)
    prepare(model.network)  # a head is whatever it computes
    network = model.network
    real = network.forward

    def scaled(*args, **kwargs):
        output = real(*args, **kwargs)
        output.logits = output.logits * 2
        return output

    network.forward = scaled
    with pytest.raises(StructureError, match="more than its output embedding"):
        prepare(network)


LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "rope_theta": 1e4,
}


def changing(kind: str) -> torch.nn.Module:
    """A model that turns all rows of a pass by other angles once one of them is longer than 20
    tokens.
    """
    if kind == "Phimoe":
        own = {"long_mscale": 2.0, "short_mscale": 1.0, "original_max_position_embeddings": 20}
        values = {**COMMON, "rope_parameters": {**LONGROPE, **own}, "num_local_experts": 2}
    else:
        own = {"original_max_position_embeddings": 20}
        values = {**COMMON, "rope_parameters": {**LONGROPE, **own}, **own}
    tokens = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(7)
    return getattr(transformers, f"{kind}ForCausalLM")(
        getattr(transformers, f"{kind}Config")(**values, **tokens)
    ).eval()


@pytest.mark.parametrize("kind", ["Phi3", "Phimoe"])
def test_a_model_in_which_the_longest_record_moves_all_others_is_refused(kind):
    """One long record would change every logit of every record in its pass, of other batches
    too.
    """
    with pytest.raises(StructureError, match="the longest context"):
        prepare(changing(kind))


def test_a_model_that_computes_its_attention_itself_is_refused():
    """Contexts of one pass that begin at different columns would see each other's padding."""
    settings = transformers.GPTNeoConfig(
        vocab_size=64,
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        bos_token_id=1,
        eos_token_id=2,
    )
    with pytest.raises(StructureError, match="attention itself"):
        prepare(transformers.GPTNeoForCausalLM(settings).eval())


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_passes_its_rehearsal(name):
    rehearse(family(name)[0])
    rehearse(family(name, torch.bfloat16)[0])


def test_a_model_that_decodes_otherwise_than_it_reads_fails_its_rehearsal(monkeypatch):
    model, _ = family("llama")
    append = Decoder._append
    monkeypatch.setattr(Decoder, "_append", lambda self, rows: append(self, rows) + 1)
    with pytest.raises(StructureError, match="come out different"):
        rehearse(model)


def test_positions_that_change_only_beyond_the_models_context_are_its_own_affair():
    """Dynamic scaling begins where no job's contexts reach."""
    torch.manual_seed(7)
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    network = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**{**COMMON, "rope_parameters": rope})
    )
    model = prepare(network.eval())
    long, short = contexts((CONTEXT - 10, 9)), contexts((9, 12), 1)
    shape, chosen = Shape(0, CONTEXT - 8, 8), Sizes(16, 16, 2)

    def logits(private: list[list[int]]) -> torch.Tensor:
        return gathered(Decoder(model, [Batch(private), Batch(short)], shape, chosen).read())[1]

    assert torch.equal(logits(long), logits(long[1:]))
