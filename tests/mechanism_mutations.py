"""Mutation proof of the mechanisms: each guard taken out alone, and a test has to fail.

    python -m tests.mechanism_mutations [--only TEXT]     # exits with 1 where nothing noticed

A mutation is a text in a source file and what stands there instead, in a copy of the project. One
whose text is no longer there is an error, so that the list keeps up with the code.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.act_mutations import SIGNED
from tests.address_mutations import CONNECTIONS
from tests.attempt_mutations import ATTEMPTS
from tests.evolution_mutations import EVOLUTION
from tests.export_mutations import EXPORTS
from tests.log_mutations import OUTSIDE
from tests.power_mutations import POWERS
from tests.steadiness_mutations import SELF_TEST

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("accountant", "workers", "web", "benchmarks", "migrations", "examples", "tests")

PRICES, PREDICTION = (
    "accountant/core/mechanisms/epsvec.py",
    "accountant/core/mechanisms/private_prediction.py",
)
COINS, METER = "workers/noise/coins.py", "workers/noise/meter.py"
RECORDS, KEYS = "workers/data/records.py", "accountant/transactions/job_keys.py"
VECTORS, SHOTS = "workers/mechanisms/epsvec/vectors.py", "workers/mechanisms/epsvec/shots.py"
PHRASES = "workers/mechanisms/dp_kps/"
KPS = "tests/workers/mechanisms/test_dp_kps.py tests/workers/mechanisms/test_dp_kps_texts.py"
RUNNER, INK = "workers/mechanisms/private_prediction.py", "workers/mechanisms/invisible_ink.py"
ONESHOT, STATES = "workers/mechanisms/summary_oneshot.py", "workers/embedding/mean_states.py"
SUPPORT, SUPPORT_TESTS = (
    "workers/engine/support.py",
    "tests/workers/mechanisms/test_public_support.py",
)
SUMMARIES = "tests/workers/mechanisms/test_summaries.py"


@dataclass(frozen=True)
class Mutation:
    """`file`: where `text` stands once and is replaced by `instead`. `tests`: what has to fail."""

    title: str
    file: str
    text: str
    instead: str
    tests: str


COIN_PRICE = "accountant/core/privacy/allocation.py"
COIN_TESTS = "tests/accountant/core/privacy/test_allocation.py"
SWAPPED = "accountant/core/privacy/replaced_samples.py"
SWAPPED_TESTS = "tests/accountant/core/privacy/test_replaced_samples.py"
ADMISSION = "accountant/core/ledger/admission.py"
STATED_TESTS = (
    "tests/accountant/core/ledger/test_currencies.py tests/accountant/core/privacy/test_filters.py"
)
WHOLE_TESTS = (
    "tests/accountant/core/privacy/test_whole_jobs.py "
    "tests/accountant/core/ledger/test_whole_jobs.py"
)

CROSS_CHECK = "accountant/core/privacy/cross_check.py"
CROSS_TESTS = "tests/accountant/core/privacy/test_cross_check.py"
SECOND_TESTS = "tests/accountant/transactions/test_second_calculation.py"

MUTATIONS = (
    Mutation(
        "a secret coin priced with against without only",
        COIN_PRICE,
        "return float(max(there, back) + SLACK)",
        "return float(there + SLACK)",
        COIN_TESTS,
    ),
    Mutation(
        "a secret coin priced without against with only",
        COIN_PRICE,
        "return float(max(there, back) + SLACK)",
        "return float(back + SLACK)",
        COIN_TESTS,
    ),
    Mutation(
        "a token's reverse direction by a log-normal of its own variance",
        COIN_PRICE,
        "square * math.exp(0.75 * square)",
        "self.shift**2 * 0.98",
        COIN_TESTS,
    ),
    Mutation(
        "a replaced unit priced as one that is added",
        "accountant/core/privacy/divergences.py",
        "by = allocation.renyi if isinstance(event, Allocated) else allocation.renyi_replaced",
        "by = allocation.renyi",
        COIN_TESTS,
    ),
    Mutation(
        "batches that aren't run left out of the coin",
        COIN_PRICE,
        "idle = math.log((batches - run) / batches) if run < batches else -math.inf",
        "idle = -math.inf",
        COIN_TESTS,
    ),
    Mutation(
        "a coin's smaller tail on the Gaussian filter",
        "accountant/core/privacy/divergences.py",
        "            return gaussian_mu_squared(event.plain)",
        "            return gaussian_mu_squared(event.draw)",
        COIN_TESTS,
    ),
    Mutation(
        "a group of units with one coin",
        "accountant/core/privacy/secrets.py",
        "return group_divergence(event.plain, order, size)  # a group has several coins",
        "return divergences.renyi(event, order * size)",
        COIN_TESTS,
    ),
    Mutation(
        "a whole job's delta returned for a prefix",
        "accountant/core/ledger/reservations.py",
        "whole = cost is None or cost.delta or part is None or part.delta",
        "whole = cost is None or part is None",
        WHOLE_TESTS,
    ),
    Mutation(
        "a pure reservation that pays a whole job's delta for a part",
        "accountant/core/ledger/reservations.py",
        "whole = cost is None or cost.delta or part is None or part.delta",
        "whole = cost is None or cost.delta or part is None",
        WHOLE_TESTS,
    ),
    Mutation(
        "a whole job that leaves the other filters open",
        ADMISSION,
        "return {**dict.fromkeys(Kind), Kind.BASIC: Amount(*cost)}",
        "return {**dict.fromkeys(Kind, ZERO), Kind.BASIC: Amount(*cost)}",
        "tests/accountant/core/ledger/test_long_adversary.py",
    ),
    Mutation(
        "a whole job after other jobs",
        ADMISSION,
        "alone = self.whole_costs(event, self.epsilon, self.delta) if self.untouched else None",
        "alone = self.whole_costs(event, self.epsilon, self.delta)",
        WHOLE_TESTS,
    ),
    Mutation(
        "a void of a whole job that reopens filters beside jobs that count on all of delta",
        "accountant/core/ledger/books.py",
        "elif held.whole:",
        "elif False:",
        WHOLE_TESTS,
    ),
    Mutation(
        "the δ of an (ε, δ) release beyond what pays it",
        ADMISSION,
        "return costs if after <= limit else",
        "return costs if True else",
        STATED_TESTS,
    ),
    Mutation(
        "nothing of the basic filter's δ kept for (ε, δ) releases",
        ADMISSION,
        "if not cost.delta or after <= limit // 2:",
        "if not cost.delta or after <= limit:",
        STATED_TESTS,
    ),
    Mutation(
        "a correction whose δ nothing counts",
        "accountant/core/ledger/reversals.py",
        "closed = stated_delta(event) and costs.get(Kind.BASIC, ZERO) is None",
        "closed = False",
        STATED_TESTS,
    ),
    Mutation(
        "a filter that holds where the δ of (ε, δ) releases is passed",
        ADMISSION,
        "return paid and any(filter_.holds for filter_ in self.filters)",
        "return any(filter_.holds for filter_ in self.filters)",
        STATED_TESTS,
    ),
    Mutation(
        "a secret coin of another program's event",
        "accountant/core/privacy/foreign_events.py",
        "case Allocated() | AllocatedReplaced():",
        "case Allocated() if False:",
        "tests/accountant/core/privacy/test_foreign_events.py",
    ),
    Mutation(
        "a correction that reopens what a whole job closed",
        "accountant/core/ledger/reversals.py",
        "_with_deltas(_larger(before.costs, wanted.costs), event),",
        "wanted.costs,",
        WHOLE_TESTS,
    ),
    Mutation(
        "a forged whole job replayed",
        "accountant/core/ledger/books.py",
        'if body.get("whole") != (whole_json(account)["whole"] if whole else None):',
        "if False:",
        WHOLE_TESTS,
    ),
    Mutation(
        "whole jobs at an epsilon that isn't moved outward",
        "accountant/core/privacy/whole_jobs.py",
        "return coarse_up(epsilon * (1 + _SLACK) + _SLACK / 10)",
        "return Fraction(epsilon) * (1 - Fraction(1, 10**4))",
        WHOLE_TESTS,
    ),
    Mutation(
        "a token at less than its supremum",
        "accountant/core/privacy/divergences.py",
        "moment = (allocation.token_log_moment(float(order), shift) + 1e-13) / above_one",
        "moment = (allocation.token_log_moment(float(order), shift * 0.999) + 1e-13) / above_one",
        WHOLE_TESTS,
    ),
    Mutation(
        "Laplace noise at the mu of its variance",
        "accountant/core/privacy/divergences.py",
        "return coarse_up(mu * (1 + 1e-12)) ** 2",
        "return Fraction(1 / multiplier) ** 2 / 2",
        "tests/accountant/core/privacy/test_laplace_mu.py",
    ),
    Mutation(
        "a coin's replaced unit quoted by adding two epsilons",
        "accountant/core/privacy/loss_distributions.py",
        "left = (delta - first(a)) * np.exp(-a)",
        "left = delta - first(a)",
        "tests/accountant/core/privacy/test_allocation_pairs.py",
    ),
    Mutation(
        "a price that a second calculation does not confirm, admitted",
        "accountant/transactions/decision.py",
        "if unconfirmed is not None:",
        "if unconfirmed is not None and approval is None:",
        SECOND_TESTS,
    ),
    Mutation(
        "a second calculation begun or not by what ex-post jobs really cost",
        "accountant/transactions/second_calculation.py",
        "if without_realized(accounts).fits(",
        "if accounts.fits(",
        SECOND_TESTS,
    ),
    Mutation(
        "a second calculation that fails counted as one that agrees",
        "accountant/transactions/second_calculation.py",
        'return f"the second calculation failed ({type(error).__name__})", True',
        "return None, False",
        SECOND_TESTS,
    ),
    Mutation(
        "a second calculation that never ends counted as one that agrees",
        "accountant/transactions/second_calculation.py",
        '_keep(asked, f"the second calculation took over {LONGEST:g} s", broken=True)',
        "_keep(asked, None, broken=True)",
        SECOND_TESTS,
    ),
    Mutation(
        "a second calculation of one filter only",
        CROSS_CHECK,
        '                yield "mu^2", ours, mu_squared(sure)',
        '                yield "mu^2", ours, 0.0',
        CROSS_TESTS,
    ),
    Mutation(
        "a figure of dp-accounting that is no number counted as a small one",
        CROSS_CHECK,
        "        if np.isnan(theirs).any():",
        "        if False:",
        CROSS_TESTS,
    ),
    Mutation(
        "a second calculation without quotes",
        CROSS_CHECK,
        'stated = {"the quote": (claimed.epsilon, claimed.delta)}',
        "stated = {}",
        CROSS_TESTS,
    ),
    Mutation(
        "swapped units without their distance to each other",
        SWAPPED,
        "np.logaddexp(there, math.log(part) + log_share + log_gaussian(mu, u - math.log(part)))",
        "there",
        SWAPPED_TESTS,
    ),
    Mutation(
        "swapped units at a quarter of their distance to neither",
        SWAPPED,
        "return log_gaussian(mu / 2, u + log_none)",
        "return log_gaussian(mu / 4, u + log_none)",
        SWAPPED_TESTS,
    ),
    Mutation(
        "a replaced unit on a sample priced by two distances",
        PRICES,
        "sampled = PoissonSampled if terms.neighbours is Neighbours.ADD_REMOVE else PoissonSwapped",
        "sampled = PoissonSampled",
        "tests/accountant/core/mechanisms/test_prices.py",
    ),
    Mutation(
        "lowest-hash without its factor 2",
        PREDICTION,
        'changed = 2 if parameters.context_partner == "lowest-hash" else 1',
        "changed = 1",
        "tests/accountant/core/mechanisms/test_prices.py "
        "tests/workers/embedding/test_clustering.py",
    ),
    Mutation(
        "private prediction's shift without the records of a unit",
        PREDICTION,
        "Fraction(parameters.clip) / parameters.batch_size * terms.max_records_per_unit",
        "Fraction(parameters.clip) / parameters.batch_size",
        "tests/accountant/core/mechanisms/test_prices.py "
        "tests/workers/embedding/test_clustering.py",
    ),
    Mutation(
        "batches filled in turn, not by a keyed hash",
        "workers/data/records.py",
        'index = first + pick(keyed_hash(self.key, "batch", record.unit), many)',
        "index = first + number % many",
        "tests/workers/data/test_records.py tests/workers/embedding/test_clustering.py",
    ),
    Mutation(
        "batches by the record instead of its unit",
        "workers/data/records.py",
        'pick(keyed_hash(self.key, "batch", record.unit), many)',
        'pick(keyed_hash(self.key, "batch", record.text), many)',
        "tests/workers/data/test_records.py tests/workers/embedding/test_clustering.py",
    ),
    Mutation(
        "an exact slot that serves with three",
        "workers/data/records.py",
        "if len(texts) == 2 or (lowest and len(texts) > 2)",
        "if len(texts) >= 2",
        "tests/workers/embedding/test_clustering.py",
    ),
    Mutation(
        "the mean divided by what a batch holds",
        RUNNER,
        "self.scale = step / parameters.batch_size",
        "self.scale = step / max(1, parameters.batch_size - 1)",
        "tests/workers/mechanisms/test_private_prediction.py "
        "tests/workers/mechanisms/test_contexts.py",
    ),
    Mutation(
        "tokens drawn at another temperature than is priced",
        RUNNER,
        "step = Fraction(parameters.clip) / (GRID * Fraction(parameters.temperature))",
        "step = Fraction(parameters.clip) / GRID",
        "tests/workers/mechanisms/test_private_prediction.py "
        "tests/workers/mechanisms/test_contexts.py",
    ),
    Mutation(
        "logits clipped at another norm than is priced",
        RUNNER,
        "self.mean = Mean(parameters.clip, count)",
        "self.mean = Mean(2 * parameters.clip, count)",
        "tests/workers/mechanisms/test_private_prediction.py "
        "tests/workers/mechanisms/test_contexts.py",
    ),
    Mutation(
        "invisible-ink at another temperature than is priced",
        INK,
        "GRID * parameters.batch_size * Fraction(parameters.temperature)",
        "GRID * parameters.batch_size",
        "tests/workers/mechanisms/test_invisible_ink.py",
    ),
    Mutation(
        "invisible-ink's differences unclipped",
        INK,
        "            .round_()\n            .clamp_(-GRID, GRID)\n",
        "            .round_()\n",
        "tests/workers/mechanisms/test_invisible_ink.py",
    ),
    Mutation(
        "invisible-ink's candidates by private logits",
        INK,
        "candidates = {number: top_k_plus(each, self.parameters) for number, each in "
        "public.items()}",
        "private = list(private)\n"
        "        first = {number: logits.mean(dim=0) for number, logits in reversed(private)}\n"
        "        candidates = {\n"
        "            number: top_k_plus(first.get(number, each), self.parameters)\n"
        "            for number, each in public.items()\n"
        "        }",
        "tests/workers/mechanisms/test_invisible_ink.py",
    ),
    Mutation(
        "a public support by a private context",
        RUNNER,
        "public = [self.without_record(label) for (label, _), _ in group]",
        "public = [\n"
        '            self.prompts[label].tokens(each[0][0] if each else "", 8, "")\n'
        "            for (label, _), each in group\n"
        "        ]",
        SUPPORT_TESTS,
    ),
    Mutation(
        "a public support in passes that memory makes smaller",
        SUPPORT,
        "fixed=True, whole=True",
        "whole=True",
        SUPPORT_TESTS,
    ),
    Mutation(
        "a public support in passes as long as other texts",
        SUPPORT,
        "fixed=True, whole=True",
        "fixed=True",
        SUPPORT_TESTS,
    ),
    Mutation(
        "a text that ends before its least number of tokens, whatever its support",
        SUPPORT,
        "if self.written[batch] < self.endings.least:",
        "if False:",
        SUPPORT_TESTS,
    ),
    Mutation(
        "a token kept as its place in the support",
        RUNNER,
        "        self.meter.drew(token)\n",
        "",
        SUPPORT_TESTS,
    ),
    Mutation(
        "the median's cost lost with the place in the support",
        "workers/noise/kept_draws.py",
        "token if cost is None else [token, *cost]",
        "token",
        SUPPORT_TESTS,
    ),
    Mutation(
        "the median's ends moved inward",
        "workers/engine/aggregation.py",
        "return low + middle, 2 * middle, middle + high",
        "return 2 * middle, 2 * middle, middle + high",
        "tests/workers/mechanisms/test_median_costs.py",
    ),
    Mutation(
        "the median's even ends moved inward",
        "workers/engine/aggregation.py",
        "return 2 * low, low + high, 2 * high",
        "return 2 * low, low + high, low + high",
        "tests/workers/mechanisms/test_median_costs.py",
    ),
    Mutation(
        "a cost of the median that is rounded down",
        "workers/engine/aggregation.py",
        "return cost + slack",
        "return cost - slack",
        "tests/workers/mechanisms/test_median_costs.py tests/workers/engine/test_aggregation.py",
    ),
    Mutation(
        "a record counted for two centres",
        "workers/embedding/clustering.py",
        "return np.stack([votes(pieces, centres) for pieces in pieces_of.values()])",
        "return np.stack([votes(pieces, centres, min(2, len(centres))) for pieces in "
        "pieces_of.values()])",
        "tests/workers/embedding/test_clustering.py",
    ),
    Mutation(
        "cluster counts without the records of a unit",
        PREDICTION,
        "return doubled(terms) * terms.max_records_per_unit",
        "return doubled(terms)",
        "tests/workers/embedding/test_clustering.py tests/workers/mechanisms/test_contexts.py",
    ),
    Mutation(
        "a histogram whose noise is drawn twice under one price",
        RUNNER,
        "cluster_counts = clusters_per_label(parameters, terms)",
        "noisy = meter.laplace(counts, count_sensitivity(terms), cluster_event(parameters))\n"
        "    cluster_counts = clusters_per_label(parameters, terms)",
        "tests/workers/mechanisms/test_contexts.py",
    ),
    Mutation(
        "a record counted for two candidates",
        SHOTS,
        "_centred(embedder.embed(label_texts, tokens), centre, check), places - centre\n",
        "_centred(embedder.embed(label_texts, tokens), centre, check), places - centre, "
        "min(2, len(texts))\n",
        "tests/workers/mechanisms/test_epsvec_influence.py",
    ),
    Mutation(
        "candidates' counts without the records of a unit",
        SHOTS,
        "sensitivity = terms.max_records_per_unit * root",
        "sensitivity = root",
        "tests/workers/mechanisms/test_epsvec.py",
    ),
    Mutation(
        "vectors without the records of a unit",
        VECTORS,
        "Fraction(doubled(terms) * terms.max_records_per_unit * GRID)",
        "Fraction(doubled(terms) * GRID)",
        "tests/workers/mechanisms/test_epsvec.py",
    ),
    Mutation(
        "vectors without the factor 2 of replace-one",
        VECTORS,
        "Fraction(doubled(terms) * terms.max_records_per_unit * GRID)",
        "Fraction(terms.max_records_per_unit * GRID)",
        "tests/workers/mechanisms/test_epsvec.py",
    ),
    Mutation(
        "everybody takes part for the price of a sample",
        VECTORS,
        "if heads for record in unit]",
        "for record in unit]",
        "tests/workers/mechanisms/test_epsvec_influence.py",
    ),
    Mutation(
        "a coin for each record of a unit",
        VECTORS,
        "if terms.max_records_per_unit == 1:\n        return [[record] for record in records]",
        "if terms.max_records_per_unit:\n        return [[record] for record in records]",
        "tests/workers/mechanisms/test_epsvec_influence.py",
    ),
    Mutation(
        "a coin of 53 bits",
        COINS,
        "return secrets.randbits(denominator.bit_length() - 1) < numerator if denominator > 1 else "
        "True",
        "return secrets.randbits(53) < int(rate * 2**53)",
        "tests/workers/mechanisms/test_epsvec_influence.py",
    ),
    Mutation(
        "a sample charged as a plain Gaussian",
        PRICES,
        "return sampled(rate, whole)",
        "return whole",
        "tests/accountant/core/mechanisms/test_prices.py",
    ),
    Mutation(
        "layers of one draw charged as one Gaussian",
        PRICES,
        'len(layer_range(parameters)) if parameters.clipping == "per-layer" else 1',
        "1",
        "tests/accountant/core/mechanisms/test_prices.py tests/workers/mechanisms/test_epsvec.py",
    ),
    Mutation(
        "differences rounded to the nearest step",
        "workers/noise/clipping.py",
        "return np.trunc(value",
        "return np.rint(value",
        "tests/workers/mechanisms/test_epsvec_influence.py",
    ),
    Mutation(
        "partners by a record's place",
        VECTORS,
        "partner_of(record, key, len(view.partners))",
        "members.index(record) % len(view.partners)",
        "tests/workers/mechanisms/test_epsvec_influence.py",
    ),
    Mutation(
        "a nearest neighbour computed with rounding",
        "workers/embedding/neighbours.py",
        "np.rint(grid, out=grid)",
        "",
        "tests/workers/embedding/test_neighbours.py",
    ),
    Mutation(
        "a coin shared by copies of a record",
        RECORDS,
        "each.secret, copies[each])",
        "each.secret)",
        "tests/workers/data/test_records.py",
    ),
    Mutation(
        "one coin for all rounds",
        RECORDS,
        'key=keyed_hash(self.key, "round", str(number))',
        "key=self.key",
        "tests/workers/data/test_records.py tests/workers/mechanisms/test_rounds.py",
    ),
    Mutation(
        "a round refunded because it was not finished",
        METER,
        "{event: rounds.begun for event",
        "{event: rounds.begun - 1 for event",
        "tests/workers/noise/test_allocation_meter.py",
    ),
    Mutation(
        "a round beyond those reserved",
        METER,
        "rounds.begun <= self._covered[event] and",
        "rounds.begun <= self._covered[event] + 1 and",
        "tests/workers/noise/test_allocation_meter.py",
    ),
    Mutation(
        "a batch that was not to run draws",
        METER,
        "turn.batch < event.run or",
        "turn.batch < event.batches or",
        "tests/workers/noise/test_allocation_meter.py",
    ),
    Mutation(
        "a coin worth what the label with the most batches makes it",
        "accountant/core/mechanisms/batches.py",
        "return min(self.batches_by_label(terms).values())",
        "return max(self.batches_by_label(terms).values())",
        "tests/accountant/core/mechanisms/test_chosen_labels.py",
    ),
    Mutation(
        "a unit's records in two labels of unlike numbers of batches",
        "accountant/core/mechanisms/batches.py",
        "if counts and parameters.amplified and terms.max_records_per_unit > 1:",
        "if False:",
        "tests/accountant/core/mechanisms/test_chosen_labels.py",
    ),
    Mutation(
        "two jobs under one key",
        KEYS,
        "key = secrets.token_bytes(KEY_BYTES)",
        "key = units",
        "tests/workers/jobs/test_job_keys.py",
    ),
    Mutation(
        "a second home runs a part under its own key",
        KEYS,
        "return _open(units, job.id, sealed)",
        "return units",
        "tests/workers/jobs/test_job_keys.py",
    ),
    Mutation(
        "a new key for what began under another",
        KEYS,
        "if job.reading_began_at is not None:",
        "if False:",
        "tests/workers/jobs/test_job_keys.py",
    ),
    Mutation(
        "a key that outlives its job",
        "accountant/transactions/settlement.py",
        "    job_keys.forget(connection, job_id)\n",
        "",
        "tests/workers/jobs/test_job_keys.py",
    ),
    Mutation(
        "passes that shrink where batches are secret",
        RUNNER,
        "shape, chosen, fixed=fixed, kept=kept)",
        "shape, chosen, kept=kept)",
        "tests/workers/mechanisms/test_rounds.py",
    ),
    Mutation(
        "contexts that serve the round that reads them",
        "workers/engine/kept_contexts.py",
        "self._fresh[key] = self.used + number",
        "self._places[key] = self.used + number",
        "tests/workers/mechanisms/test_rounds.py::test_a_context_serves_from_the_next_round_on",
    ),
    Mutation(
        "memory in which a round finds what another left",
        "workers/engine/kept_contexts.py",
        "        self._store.clear()\n",
        "",
        "tests/workers/mechanisms/test_rounds.py"
        "::test_nothing_of_a_round_stays_in_memory_that_the_next_one_uses",
    ),
    Mutation(
        "texts of the median that rules leave out",
        RUNNER,
        "rules.publishes(text.text) if mean else text.text",
        "rules.publishes(text.text)",
        "tests/workers/mechanisms/test_private_prediction.py"
        "::test_rules_leave_out_texts_of_the_mean_and_count_them",
    ),
    Mutation(
        "stubs that are begun",
        RUNNER,
        "if self.left >= least_begun(self.parameters):",
        "if self.left:",
        "tests/workers/mechanisms/test_private_prediction.py"
        "::test_no_text_is_begun_with_fewer_than_sixteen_tokens_left",
    ),
    Mutation(
        "rounds whose times are shown",
        "workers/interface.py",
        "return 0 if self.silent else self.done",
        "return self.done",
        "tests/workers/jobs/test_job_keys.py",
    ),
    Mutation(
        "a replaced unit priced as an added one",
        "accountant/core/mechanisms/batches.py",
        "kind = Allocated if terms.neighbours is Neighbours.ADD_REMOVE else AllocatedReplaced",
        "kind = Allocated",
        "tests/accountant/core/mechanisms/test_allocation_requests.py",
    ),
    Mutation(
        "a meter that draws before it looks",
        "workers/noise/meter.py",
        "self._record(event, part)\n        self.kept.before_drawing(part)\n"
        "        token = draw(scores, scale)",
        "token = draw(scores, scale)\n        self._record(event, part)",
        "tests/workers/noise/test_sampling_and_meter.py",
    ),
    Mutation(
        "phrases: each term of a record with its whole weight",
        PHRASES + "sketches.py",
        "weight_steps(parameters) // len(terms)",
        "weight_steps(parameters)",
        KPS,
    ),
    Mutation(
        "phrases: a short record in long sketches",
        PHRASES + "sketches.py",
        " if len(terms) >= sketch.blocks",
        " if terms",
        KPS,
    ),
    Mutation(
        "phrases: a term that no embedding can place in a Fourier sketch",
        PHRASES + "__init__.py",
        "for place, phrase in enumerate(phrases) if placed[place]",
        "for place, phrase in enumerate(phrases)",
        KPS,
    ),
    Mutation(
        "phrases: a public list that is too short",
        PHRASES + "sketches.py",
        "if parameters.vocabulary_size > len(listed.documents):",
        "if False:",
        KPS,
    ),
    Mutation(
        "phrases: negative densities drawn",
        PHRASES + "sequences.py",
        "likely = np.maximum(densities, 0)",
        "likely = np.abs(densities)",
        KPS,
    ),
    Mutation(
        "phrases: a record read to its end",
        PHRASES + "sketches.py",
        "terms = listed.distinct(record.text, parameters.terms_per_record, "
        "parameters.record_words)",
        "terms = listed.distinct(record.text, parameters.terms_per_record)",
        KPS,
    ),
    Mutation(
        "phrases: a replaced record that moves a histogram by 1",
        "accountant/core/mechanisms/dp_kps.py",
        "        return _root(2) * bound",
        "        return Fraction(bound)",
        KPS,
    ),
    Mutation(
        "phrases: sequences longer than their sketches",
        PHRASES + "__init__.py",
        'if sketch.layout.method != "independent" and parameters.sequence_length > most:',
        "if False:",
        KPS,
    ),
    Mutation(
        "a replaced record's one-shot sum declared as an added one's",
        ONESHOT,
        "Fraction(doubled(terms) * terms.max_records_per_unit * GRID)",
        "Fraction(terms.max_records_per_unit * GRID)",
        SUMMARIES,
    ),
    Mutation(
        "a replaced record's token sum declared as an added one's",
        "workers/mechanisms/summary_token.py",
        "Fraction(doubled(self.terms) * self.terms.max_records_per_unit * GRID)",
        "Fraction(self.terms.max_records_per_unit * GRID)",
        SUMMARIES,
    ),
    Mutation(
        "states that are projected after the clip",
        STATES,
        "total += to_grid(view.coordinates(state), clip)",
        "total += np.trunc(view.coordinates(to_grid(state, clip) * 1.0)).astype(np.int64)",
        SUMMARIES,
    ),
    Mutation(
        "the noise of a summary calibrated for one token",
        "accountant/core/mechanisms/summary_token.py",
        "gaussian_multiplier(epsilon, terms.delta, parameters.max_tokens)",
        "gaussian_multiplier(epsilon, terms.delta)",
        "tests/accountant/core/mechanisms/test_summaries.py",
    ),
    Mutation(
        "groups below min_group",
        "accountant/core/mechanisms/group_means.py",
        "if terms.groups and stated_size < parameters.min_group:",
        "if False:",
        "tests/accountant/core/mechanisms/test_bad_requests.py",
    ),
    Mutation(
        "a text of a set as its own target",
        "workers/mechanisms/summary_adapter.py",
        "sets.append(chosen[1:])",
        "sets.append(chosen[:-1])",
        SUMMARIES,
    ),
    Mutation(
        "an adapter of another model",
        "accountant/transactions/sources.py",
        "elif _of_another_model(source, model_id):",
        "elif False:",
        "tests/accountant/transactions/test_sources.py",
    ),
    Mutation(
        "any job of another dataset as a source",
        "accountant/transactions/artifacts.py",
        "and_(jobs.c.mechanism.in_(public), jobs.c.reads_records.is_(False))",
        "jobs.c.id == job_id",
        "tests/accountant/transactions/test_sources.py",
    ),
    Mutation(
        "a ledger that names a private job of another dataset",
        "accountant/core/ledger/lineage.py",
        'if "dataset" in each and (not each["artifacts"] or not _is_public(each)):',
        'if "dataset" in each and not each["artifacts"]:',
        "tests/accountant/transactions/test_sources.py",
    ),
    *(Mutation(*each) for each in EVOLUTION),
    *(Mutation(*each) for each in ATTEMPTS),
    *(Mutation(*each) for each in OUTSIDE),
    *(Mutation(*each) for each in POWERS),
    *(Mutation(*each) for each in CONNECTIONS),
    *(Mutation(*each) for each in SIGNED),
    *(Mutation(*each) for each in EXPORTS),
    *(Mutation(*each) for each in SELF_TEST),
)


def copy_to(folder: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def noticed(folder: Path, mutation: Mutation) -> str | None:
    """The first test that fails, or nothing. The source is put back."""
    path = folder / mutation.file
    source = path.read_text("utf-8")
    if source.count(mutation.text) != 1:
        raise SystemExit(
            f"{mutation.title}: its text stands {source.count(mutation.text)} times in the code"
        )
    path.write_text(source.replace(mutation.text, mutation.instead), "utf-8")
    command = f"-m pytest -x -q -rf -p no:cacheprovider {mutation.tests}".split()
    try:
        ran = subprocess.run(
            [sys.executable, *command, "-m", "not release"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(source, "utf-8")
    if ran.returncode == 0:
        return None
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAILED ")]
    if ran.returncode != 1 or not failed:
        raise SystemExit(
            f"{mutation.title}: the tests could not run\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        )
    return failed[0].split("::", 1)[1].split(" - ")[0].split("[")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the titles of those to try")
    only = parser.parse_args().only
    missed = 0
    print("| mutation | failing test |\n|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_to(folder)
        for mutation in MUTATIONS:
            if only in mutation.title:
                found = noticed(folder, mutation)
                missed += found is None
                print(f"| {mutation.title} | {f'`{found}`' if found else 'NOTHING'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
