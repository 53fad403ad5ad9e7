"""Guards of aug-pe and secpe for tests.mechanism_mutations: title, file, text, what stands instead,
tests.
"""

PRICE, RUNNER = "accountant/core/mechanisms/aug_pe.py", "workers/mechanisms/aug_pe.py"
FIELDS, VARIATION = (
    "accountant/core/mechanisms/evolution_fields.py",
    "workers/evolution/variation.py",
)
POPULATION, RELEASES = "workers/evolution/population.py", "workers/mechanisms/secpe/releases.py"
CELLS, KIT = "workers/mechanisms/secpe/cells.py", "tests/workers/conformance/noting.py"
AUG_PE, SECPE = "tests/workers/mechanisms/test_aug_pe.py", "tests/workers/mechanisms/test_secpe.py"
WRITES = "tests/workers/evolution/test_variation.py"

EVOLUTION = (
    (
        "votes of replaced units priced as of added ones",
        PRICE,
        "root_up(doubled(terms) * parameters.votes)",
        "root_up(parameters.votes)",
        f"{AUG_PE}::test_the_meter_records_the_price_and_a_unit_moves_no_more_than_is_declared",
    ),
    (
        "a root rounded down",
        FIELDS,
        "Fraction(math.isqrt(square << 120) + 1, 1 << 60)",
        "Fraction(math.isqrt(square << 120), 1 << 60)",
        f"{AUG_PE}::test_the_declared_sensitivity_is_the_root_rounded_up",
    ),
    (
        "noise on counts with a vote only",
        RUNNER,
        "return dict(zip(sizes, np.split(noisy, ends), strict=True))",
        "noisy = np.where(np.concatenate(list(counts())) > 0, noisy, 0)\n"
        "    return dict(zip(sizes, np.split(noisy, ends), strict=True))",
        f"{AUG_PE}::test_a_candidate_without_a_vote_gets_noise_too",
    ),
    (
        "identical texts that stay candidates of their own",
        POPULATION,
        "place = self.places.setdefault(made.text, len(self.samples))",
        "place = len(self.samples)",
        f"{AUG_PE}::test_identical_texts_are_one_candidate",
    ),
    (
        "copies accepted as variations",
        VARIATION,
        "return is_copy(made, source)",
        "return False",
        f"{WRITES}::test_copies_refusals_and_empty_texts_are_asked_for_again_and_then_the_source_stands_in",
    ),
    (
        "rejected variations left out",
        VARIATION,
        "texts + [source] * lacking\n",
        "texts + [source] * (lacking * 0)\n",
        f"{WRITES}::test_every_text_always_has_the_public_number_of_variations",
    ),
    (
        "more votes than there are candidates",
        RUNNER,
        "votes(private, candidates, min(k, usable))",
        "votes(private, candidates, k)",
        f"{AUG_PE}::test_the_meter_records_the_price_and_a_unit_moves_no_more_than_is_declared",
    ),
    (
        "a redacted secret without a coin",
        "accountant/core/secret_patterns.py",
        "if TAG in searched:",
        "if False:",
        f"{SECPE}::test_who_carries_a_secret",
    ),
    (
        "centre noise by what really joined",
        RELEASES,
        "for size in cells.sizes.tolist()\n        ]",
        "for size in counts.tolist()\n        ]",
        f"{SECPE}::test_noise_of_a_centre_is_that_of_its_public_number",
    ),
    (
        "records longer than the radius",
        RELEASES,
        "np.maximum(norms, radius)",
        "radius",
        f"{SECPE}::test_vectors_on_the_grid_are_never_longer_than_the_radius_and_noise_fits",
    ),
    (
        "steps that rounding may add forgotten",
        RELEASES,
        "Fraction(2 * steps, size) + root_up(members.dimensions) for",
        "Fraction(2 * steps, size + 1) for",
        f"{SECPE}::test_noise_of_a_centre_is_that_of_its_public_number",
    ),
    (
        "a record without a secret that tosses a coin",
        RELEASES,
        "[int(not carrier or coins.heads(rate)) for",
        "[int(coins.heads(rate)) for",
        f"{SECPE}::test_coins_are_of_carriers_alone_at_the_declared_rate_and_fresh_in_each_round",
    ),
    (
        "one draw of coins for all rounds",
        "workers/mechanisms/secpe/__init__.py",
        "if parameters.recluster:\n                    noisy",
        "if False:\n                    noisy",
        f"{SECPE}::test_coins_are_of_carriers_alone_at_the_declared_rate_and_fresh_in_each_round",
    ),
    (
        "votes of another space",
        RELEASES,
        "if not same or np.abs(",
        "if False and np.abs(",
        f"{SECPE}::test_another_embedding_model_or_other_labels_are_named",
    ),
    (
        "a secret's move that the kit doesn't compare",
        KIT,
        "moved += sum(int(step) ** 2 for step in row) / move**2",
        "moved += 0",
        "tests/workers/conformance/test_conformance.py",
    ),
    (
        "a pattern that matches any text",
        "accountant/core/secret_patterns.py",
        "if all(compiled.search(text) is not None for text in _ANY_TEXT):",
        "if False:",
        "tests/accountant/core/test_secret_patterns.py",
    ),
)
