"""Metrics that run a language model, on tiny models made here."""

import pytest
import torch

from workers.evaluation import language, summaries
from workers.evaluation.transfer import Labelled

WORDS = ["the", "a", "film", "was", "good", "bad", "dull", "fine", "and", "plot", "cast"]
WORDS += ["label", "text", ":", "sport", "world", "match", "treaty"]


def _tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
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
def encoder(tmp_path_factory):
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("encoder")
    config = BertConfig(
        vocab_size=_tokenizer(folder),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return folder


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


def test_bert_score_is_that_of_its_library(encoder):
    library = pytest.importorskip("bert_score")
    ours = ["the film was good", "a dull plot", "fine cast and plot"]
    right = ["a film was fine", "the plot was bad", "the cast was good and the plot fine"]
    *_, wanted = library.score(ours, right, model_type=str(encoder), num_layers=2, idf=False)
    found = summaries.bert_score(encoder, ours, right, layer=2)
    assert found.value == pytest.approx(float(wanted.mean()), abs=1e-5)
    assert found.settings["layer"] == 2
    assert summaries.bert_score(encoder, [""], ["a film"]).value == 0.0


def test_next_token_accuracy_rises_on_what_was_learned(writer):
    texts = ["the film was good and the plot was fine"] * 40
    figure = language.next_token_accuracy(writer, texts, texts[:5], steps=60, batch=8, tokens=12)
    assert figure.value > 0.9
    assert figure.details["before training"] < 0.5
    assert figure.settings["steps"] == 60


def test_in_context_accuracy_names_labels_and_its_settings(writer):
    examples = Labelled(["match match", "treaty treaty"] * 4, ["sport", "world"] * 4)
    figure = language.in_context_accuracy(writer, examples, examples, shots=2, tokens=8)
    assert 0 <= figure.value <= 1
    assert figure.settings["shots per label"] == 2
    with pytest.raises(ValueError, match="no example has the label"):
        language.in_context_accuracy(writer, examples, Labelled(["a"], ["dull"]))
