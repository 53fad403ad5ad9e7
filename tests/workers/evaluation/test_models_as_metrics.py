"""Metrics that run a language model, on tiny models made here."""

import pytest
import torch

from workers import models
from workers.evaluation import language
from workers.evaluation.transfer import Labelled

WORDS = ["the", "a", "film", "was", "good", "bad", "dull", "fine", "and", "plot", "cast"]
WORDS += ["label", "text", ":", "sport", "world", "match", "treaty"]


def _tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {
        word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])
    }
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    )
    fast.save_pretrained(folder)
    return len(vocabulary)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("writer")
    config = LlamaConfig(
        vocab_size=_tokenizer(folder),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_next_token_accuracy_rises_on_what_was_learned(writer):
    texts = ["the film was good and the plot was fine"] * 40
    figure = language.next_token_accuracy(writer, texts, texts[:5], steps=60, batch=8, tokens=12)
    assert figure.value > 0.9
    assert figure.details["before training"] < 0.5
    assert figure.settings["steps"] == 60


def test_a_large_model_learns_in_bfloat16_without_copies_of_its_weights(writer, monkeypatch):
    monkeypatch.setattr(models, "LARGE", 1)
    monkeypatch.setattr(models, "faster_in_bfloat16", lambda folder, device: True)
    monkeypatch.setattr(torch.optim, "AdamW", None)
    network, _, large = language._load(writer)
    optimiser, rate = language._optimiser(network, 5e-4, large)
    assert network.dtype is torch.bfloat16
    network(input_ids=torch.tensor([[5, 6]]), labels=torch.tensor([[5, 6]])).loss.backward()
    optimiser.step()
    kept = [
        each
        for state in optimiser.state.values()
        for each in state.values()
        if torch.is_tensor(each)
    ]
    assert sum(map(torch.numel, kept)) < sum(map(torch.numel, network.parameters())) / 4
    texts = ["the film was good and the plot was fine"] * 40
    figure = language.next_token_accuracy(writer, texts, texts[:5], steps=120, batch=8, tokens=12)
    assert figure.value > 0.9
    assert (figure.settings["optimiser"], figure.settings["learning_rate"]) == ("Adafactor", rate)


def test_in_context_accuracy_names_labels_and_its_settings(writer):
    examples = Labelled(["match match", "treaty treaty"] * 4, ["sport", "world"] * 4)
    figure = language.in_context_accuracy(writer, examples, examples, shots=2, tokens=8)
    assert 0 <= figure.value <= 1
    assert figure.settings["shots per label"] == 2
    with pytest.raises(ValueError, match="no example has the label"):
        language.in_context_accuracy(writer, examples, Labelled(["a"], ["dull"]))


@torch.inference_mode()
def plain_likelihood(model, prompt: str, asked: str, answer: str) -> float:
    """What `likelihoods` gives, by reading everything in one pass."""
    head, tail = (
        model.tokenizer.encode(each, add_special_tokens=False) for each in (prompt + asked, answer)
    )
    head = [*models.text_start(model.tokenizer), *head]
    scores = (
        model.network(input_ids=torch.tensor([head + tail]))
        .logits[0, len(head) - 1 : -1]
        .log_softmax(-1)
    )
    return float(scores.gather(1, torch.tensor(tail)[:, None]).mean())


def test_likelihoods_are_those_of_one_pass_and_the_prompt_is_read_once(writer, monkeypatch):
    model = models.load(writer, models.digest(writer))
    prompt = "text : the film was good label : world " * 3
    asked = [
        "text : a dull plot label :",
        "text : match label :",
        "text : the cast was fine label :",
    ]
    answers = [" sport", " world treaty match", " treaty world"]
    read, forward = [], model.structure.base.forward
    with monkeypatch.context() as patched:
        patched.setattr(
            model.structure.base,
            "forward",
            lambda **given: read.append(given["input_ids"].shape) or forward(**given),
        )
        found = language.likelihoods(model, prompt, asked, answers)
    wanted = [
        [plain_likelihood(model, prompt, text, answer) for answer in answers] for text in asked
    ]
    assert found.tolist() == pytest.approx(torch.tensor(wanted), abs=1e-4)
    length = len(model.tokenizer.encode(prompt, add_special_tokens=False))
    assert [columns for _, columns in read if columns >= length] == [length]
    assert len(read) == 4  # the prompt, the texts, and the answers' second and third tokens


def test_a_prompt_that_does_not_fit_loses_its_beginning(writer):
    model = models.load(writer, models.digest(writer))
    prompt, asked = "good " * 200 + "bad " * 250, ["text : match label :"]
    found = language.likelihoods(model, prompt, asked, [" sport"])
    assert found.item() == pytest.approx(
        plain_likelihood(model, "bad " * (256 - 5 - 1), asked[0], " sport"), abs=1e-3
    )
