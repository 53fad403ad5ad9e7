"""`private-prediction` (paper 001, Algorithm 1, with the mean of Equation 1 or the median; Amin et
al. 2024).

    for each batch, several side by side:
        repeat until T tokens are written, or too few are left for another text:
            V      = the top_k tokens of the public context: the prompt without a record
            z_r    = logits of every context r of the batch, of the tokens in V
            scores = sum, or median, over r of clip_c(z_r), each on a fixed grid of integers
            token  ~ softmax(scores / (s * temperature)) over V   # mean: s is public, whatever the
                     batch holds
                     softmax(scores / temperature) over V         # median
            append the token to every context; an end token starts the batch's next text
    texts of the mean that public rules leave out are counted, and not published

A record is in the batch that a keyed hash of its unit picks among all of its label's (uniform) or
among those of its cluster (embedding/clustering.py). A context holds a record, and perhaps a second
text: a public one, a fixed shot, or another record.

When a batch ends follows from what it wrote, whatever it holds: the mean of nothing is zero, and
every batch of the median includes the same k_0 public contexts: texts of the public corpus or,
where none is named, the template with an empty record, k_0 times. What a median's token costs ex
post depends on the data, so it is handed to the meter and nothing here looks at it.

With amplification all of this is one round: the next begins with coins, and prompts, of its own. No
pass may become smaller then, for the last digits of a unit's logits in other batches are not
covered by its price.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from accountant.core.mechanisms.batches import LEFT_OUT, least_begun
from accountant.core.mechanisms.private_prediction import (
    PrivatePrediction,
    cluster_event,
    clusters_per_label,
    count_sensitivity,
    fixed_shots,
    slots,
    token_event,
)
from accountant.core.privacy.price import Terms
from workers.data.records import Counts, Place, Records, Within, share_of
from workers.embedding.clustering import Clusters, count, embedded, keep, public_centres, within
from workers.embedding.public_contexts import from_corpus, from_shots
from workers.engine import (
    Batch,
    Continued,
    Decoder,
    Endings,
    KeptContexts,
    PublicContexts,
    Shape,
    Sizes,
    Support,
    Supports,
    check_steady,
    private_sizes,
)
from workers.engine.aggregation import (
    GRID,
    Mean,
    Median,
    Scores,
    grid_costs,
)
from workers.generation.rules import Rules
from workers.interface import NOTHING_PUBLIC, Artifact, Progress, Public, Text
from workers.models import LocalModel, Prompt, endings
from workers.noise.meter import Branch, Meter, Turn


class Runner:
    """Runs `private-prediction`."""

    resumes = True

    def total(self, parameters: PrivatePrediction, terms: Terms) -> int:
        """Return tokens written over all batches: public."""
        return parameters.batches_run(terms) * parameters.tokens_per_batch * parameters.rounds

    def prepare(
        self, parameters: PrivatePrediction, terms: Terms, model: LocalModel, share: tuple[int, int]
    ) -> None:
        """Refuse a device on which one record acts on another's logits, where that has no price."""
        if parameters.amplified:
            count = range(parameters.batches_run(terms))[
                share_of(parameters.batches_run(terms), share)
            ]
            labels = parameters.written(terms) or (None,)
            prompts = [Prompt(model.tokenizer, parameters.template, label) for label in labels]
            shape = shape_of(parameters, prompts)
            chosen = private_sizes(
                model.network, shape, parameters.batch_size, len(count), model.memory_bytes
            )
            check_steady(model.structure, shape, chosen)

    def run(
        self,
        parameters: PrivatePrediction,
        terms: Terms,
        records: Records,
        model: LocalModel,
        meter: Meter,
        progress: Progress,
        public: Public = NOTHING_PUBLIC,
    ) -> Iterator[Text | Artifact]:
        """Write all batches' texts, as many side by side as a public count has room for."""
        records = records.of(parameters.labels)
        places = None
        if parameters.batching == "clusters":
            clusters, places = _clustered(parameters, terms, records, meter, progress, public)
            # an ex-post job publishes its texts and nothing else
            if parameters.aggregation == "mean":
                yield Artifact.of_tensors("clusters", "clusters", clusters.tensors())
        contexts = Contexts(parameters, model.tokenizer, records.labels, public)
        shape = shape_of(parameters, contexts.prompts.values())
        rules, mean = Rules([parameters.template]), parameters.aggregation == "mean"
        many = parameters.batch_size + contexts.public_count
        kept = None
        if parameters.rounds > 1:
            kept = KeptContexts(model.structure, shape, model.memory_bytes)
        for number in range(parameters.rounds):
            if kept is not None:
                kept.begin_round()
            coins = records.in_round(number) if parameters.amplified else records
            items = list(contexts.of(coins, parameters.batches_by_label(terms), places).items())
            chosen = private_sizes(model.network, shape, many, len(items), model.memory_bytes)
            for first in range(0, len(items), chosen.batches):
                group = items[first : first + chosen.batches]
                writers = []
                for (label, index), _ in group:
                    part = Turn(number, label, index) if parameters.amplified else (label, index)
                    writers.append(_Writer(parameters, terms, model, label, meter.parallel(part)))
                made = partial(contexts.opened, group, model, shape, chosen, kept)
                for text in _write(made, writers, progress):
                    # what the median's tokens cost holds of them all
                    if rules.publishes(text.text) if mean else text.text:
                        yield text
        # a part of a shared job releases texts alone
        if rules.left_out and mean and records.share[1] == 1:
            yield Artifact.of_json(LEFT_OUT, LEFT_OUT, rules.counts())


# --- batches and contexts -----------------------------------------------------------------------


def _clustered(
    parameters: PrivatePrediction,
    terms: Terms,
    records: Records,
    meter: Meter,
    progress: Progress,
    public: Public,
) -> tuple[Clusters, Within]:
    """Return noisy counts over public centres, those kept, and each record's place."""
    embedder, tokens = public.embedder("embedding"), parameters.record_tokens
    texts = (text for text, _ in public.corpus("public_corpus").texts())
    centres = public_centres(texts, embedder, parameters.public_centres, tokens)
    counts = count(embedded(records, embedder, tokens, progress.check), centres)
    noisy = meter.laplace(counts, count_sensitivity(terms), cluster_event(parameters))
    cluster_counts = clusters_per_label(parameters, terms)
    many = list(parameters.batches_by_label(terms).values())
    clusters = keep(centres, noisy, cluster_counts, many)
    return clusters, within(embedded(records, embedder, tokens, progress.check), records, clusters)


#: The texts of a context: a record, and the second text, empty where there is one.
Example = tuple[str, str]


class Contexts:
    """A job's prompts, with what they show: records, partners, public contexts."""

    def __init__(
        self,
        parameters: PrivatePrediction,
        tokenizer: Any,
        labels: Sequence[str | None],
        public: Public,
    ) -> None:
        self.parameters = parameters
        self.prompts = {label: Prompt(tokenizer, parameters.template, label) for label in labels}
        named = parameters.public_corpus is not None
        self.corpus = from_corpus(public.corpus("public_corpus"), labels) if named else None
        self._endings: Endings | None = None
        self.partners = self.corpus
        if parameters.context_partner == "shot":
            self.partners = from_shots(fixed_shots(parameters), labels)

    def of(
        self, records: Records, many: Counts, places: Within | None = None
    ) -> dict[Place, list[Example]]:
        """Return the private examples of every batch."""
        parameters, run = self.parameters, self.parameters.batches_to_run
        if parameters.context_partner in ("exact-slot", "lowest-hash"):
            lowest = parameters.context_partner == "lowest-hash"
            return records.pairs(many, slots(parameters), lowest, places, run)
        batches = records.batches(many, places, run)
        if parameters.context_partner is None:
            return {place: [(text, "") for text in texts] for place, texts in batches.items()}
        assert self.partners is not None  # `missing` asks for a corpus or shots
        beside, key = self.partners.beside, records.key
        return {
            (label, index): [(text, beside(label, key, text)) for text in texts]
            for (label, index), texts in batches.items()
        }

    def batch(self, label: str | None, examples: list[Example]) -> Batch:
        """Return a context for each example; for the median the public ones come first."""
        prompt, cut = self.prompts[label], self.parameters.record_tokens
        shown = [*self.public(label), *examples]
        prefix = _shared(prompt)
        return Batch([prompt.tokens(one, cut, two)[len(prefix) :] for one, two in shown], prefix)

    def opened(
        self,
        group: Sequence[tuple[Place, list[Example]]],
        model: LocalModel,
        shape: Shape,
        chosen: Sizes,
        kept: KeptContexts | None,
    ) -> "_Group":
        """Return the batches of a group, ready to be read."""
        batches = [self.batch(label, examples) for (label, _), examples in group]
        fixed = self.parameters.amplified
        decoder = Decoder(model.structure, batches, shape, chosen, fixed=fixed, kept=kept)
        public = [self.without_record(label) for (label, _), _ in group]
        room = model.memory_bytes
        ends = self.endings(model)
        contexts = PublicContexts(model.structure, public, shape.text, room, ends, kept)
        return _Group(self.parameters, decoder, Supports(contexts, self.parameters.top_k))

    def endings(self, model: LocalModel) -> Endings:
        """Return what ends a text, found once a job."""
        if self._endings is None:
            self._endings = endings(model, self.parameters.stop, self.parameters.min_tokens)
        return self._endings

    def without_record(self, label: str | None) -> list[int]:
        """Return the public context of a label: its prompt with nothing where a record stands."""
        record, partner = self._nothing(label)
        return self.prompts[label].tokens(record, self.parameters.record_tokens, partner)

    def _nothing(self, label: str | None) -> Example:
        return "", "" if self.partners is None else self.partners.some(label, 1)[0]

    @property
    def public_count(self) -> int:
        """The number of contexts shown by `public`."""
        if self.parameters.aggregation != "median":
            return 0
        return 1 if self.corpus is None else self.parameters.public_contexts

    def public(self, label: str | None) -> list[Example]:
        """Return the texts of the median's public contexts, or one for all."""
        parameters = self.parameters
        if parameters.aggregation != "median":
            return []
        if self.corpus is None:
            return [self._nothing(label)]
        texts = self.corpus.some(label, parameters.public_contexts)
        if parameters.context_partner is None:
            return [(text, "") for text in texts]
        assert self.partners is not None
        partners = self.partners.some(label, len(texts), skip=len(texts))
        return list(zip(texts, partners, strict=True))


def _shared(prompt: Prompt) -> list[int]:
    """Return tokens that a label's contexts share, but one: each has one of its own."""
    return prompt.before[:-1]


def shape_of(parameters: PrivatePrediction, prompts: Iterable[Prompt]) -> Shape:
    """Return public lengths: the longest prefix, a full record and a full text."""
    lengths = [
        (len(_shared(prompt)), prompt.fixed_tokens - len(_shared(prompt))) for prompt in prompts
    ]
    return Shape(
        prefix=max(prefix for prefix, _ in lengths),
        rest=max(rest for _, rest in lengths)
        + parameters.examples_per_context * parameters.record_tokens,
        text=parameters.max_text_tokens or parameters.tokens_per_batch,
    )


# --- writing ------------------------------------------------------------------------------------


def _write(
    make: Callable[[], "_Group"], writers: list["_Writer"], progress: Progress
) -> Iterator[Text]:
    """Yield texts of the batches side by side until none begins another."""
    group = Continued(make)
    while True:
        tokens = {}
        for number, writer in enumerate(writers):
            while writer.left and number not in tokens:
                token = writer.kept()
                if token is None:
                    token = writer.draw(group.law(number))
                progress.advance()
                text = writer.ended(token)
                if text is None:
                    tokens[number] = token
                    continue
                yield text
                progress.advance(writer.leave_stub())
                group.restart(number)
        if not tokens:
            return
        group.append(tokens)


@dataclass(frozen=True)
class _Law:
    """Distribution of the next token: `scores` int64 (n,) of the tokens of `support`; `costs`
    float64 (n,) of the median.
    """

    support: Support
    scores: Scores
    costs: NDArray[np.float64] | None = None


class _Group:
    """Batches decoded together, and how their logits become what a token is drawn from."""

    def __init__(self, parameters: PrivatePrediction, decoder: Decoder, supports: Supports) -> None:
        self.parameters, self.decoder, self.supports = parameters, decoder, supports

    def read(self) -> dict[int, _Law]:
        """Read all prompts; what the first token of each batch's texts is drawn from."""
        return self._laws(self.supports.read(), self.decoder.read())

    def append(self, texts: Mapping[int, Sequence[int]]) -> dict[int, _Law]:
        """Append to each named batch the beginning of a text; what its next token is drawn from."""
        return self._laws(self.supports.append(texts), self.decoder.append(texts))

    def step(self, tokens: Mapping[int, int]) -> dict[int, _Law]:
        """Append to each named batch its token; what its next one is drawn from."""
        return self._laws(self.supports.step(tokens), self.decoder.step(tokens))

    def restart(self, batch: int) -> None:
        """The batch's next text begins."""
        self.decoder.restart(batch)
        self.supports.restart(batch)

    def _laws(
        self, supports: Mapping[int, Support], given: Iterator[tuple[int, torch.Tensor]]
    ) -> dict[int, _Law]:
        collected = {number: self._collector(each) for number, each in supports.items()}
        for number, logits in given:
            # (contexts of this pass, vocabulary) float32
            collected[number].add(supports[number].of(logits))
        return {number: context.law() for number, context in collected.items()}

    def _collector(self, support: Support) -> "_CollectMean | _CollectMedian":
        if self.parameters.aggregation == "mean":
            vocabulary = self.decoder.model.vocabulary
            return _CollectMean(self.parameters, support, vocabulary)
        return _CollectMedian(self.parameters, support)


class _CollectMean:
    def __init__(self, parameters: PrivatePrediction, support: Support, vocabulary: int) -> None:
        self.support = support
        count = vocabulary if support.tokens is None else len(support.tokens)
        self.mean = Mean(parameters.clip, count)

    def add(self, logits: torch.Tensor) -> None:
        self.mean.add(logits)

    def law(self) -> _Law:
        return _Law(self.support, self.mean.scores())


class _CollectMedian:
    """Public contexts come first; a single one, where no corpus is named, counts k_0 times."""

    def __init__(self, parameters: PrivatePrediction, support: Support) -> None:
        self.parameters, self.support = parameters, support
        self.median = Median(parameters.clip)

    def add(self, logits: torch.Tensor) -> None:
        if not self.median.pieces and self.parameters.public_corpus is None:
            # (k_0, tokens)
            self.median.add(logits[:1].expand(self.parameters.public_contexts, -1))
            logits = logits[1:]  # (contexts - 1, tokens)
        self.median.add(logits)

    def law(self) -> _Law:
        interval = self.median.interval()
        costs = grid_costs(interval, self.parameters.clip, self.parameters.temperature)
        return _Law(self.support, interval.median, costs.numpy())


class _Writer:
    """One batch's text in the making, and the tokens that the batch still has to write."""

    def __init__(
        self,
        parameters: PrivatePrediction,
        terms: Terms,
        model: LocalModel,
        label: str | None,
        meter: Branch,
    ) -> None:
        self.parameters, self.model, self.label, self.meter = parameters, model, label, meter
        self.limit = parameters.max_text_tokens or parameters.tokens_per_batch
        self.left = parameters.tokens_per_batch
        self.written: list[int] = []
        # scores * scale = aggregated logits / temperature, exactly.
        step = Fraction(parameters.clip) / (GRID * Fraction(parameters.temperature))
        if parameters.aggregation == "mean":
            self.event = token_event(parameters, terms)
            self.scale = step / parameters.batch_size
        else:
            self.scale = step / 2

    def leave_stub(self) -> int:
        """Return the tokens that are left of the batch and too few for a text: none is drawn."""
        if self.left >= least_begun(self.parameters):
            return 0
        stub, self.left = self.left, 0
        return stub

    def kept(self) -> int | None:
        """Return the next token, if an earlier attempt drew it."""
        if self.parameters.aggregation == "mean":
            token = self.meter.kept_token(self.event)
        else:
            token = self.meter.kept_ex_post_token()
        self.left -= token is not None
        return token

    def draw(self, law: _Law) -> int:
        """Return the next token, paid for."""
        self.left -= 1
        if law.costs is not None:
            place = self.meter.ex_post_token(law.scores, self.scale, law.costs)
        else:
            place = self.meter.sample_token(law.scores, self.scale, self.event)
        token = law.support.token(place)
        self.meter.drew(token)
        return token

    def ended(self, token: int) -> Text | None:
        """Return the text if `token` ends it: end, stop, length limit or last token."""
        complete = token in self.model.end_tokens
        if not complete:
            self.written.append(token)
            stop = self.parameters.stop
            complete = stop is not None and stop in self._decode(self.written[-64:])
            if not complete and self.left and len(self.written) < self.limit:
                return None
        text = self._decode(self.written)
        if self.parameters.stop:
            text = text.split(self.parameters.stop, 1)[0]
        self.written = []
        return Text(text.strip(), self.label, complete)

    def _decode(self, tokens: list[int]) -> str:
        text: str = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
        return text
