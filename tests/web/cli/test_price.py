"""`exchequer price`: the contract that scripts rely on, and every way to ask for nonsense."""

import json
import math
from pathlib import Path

import pytest

from tests.web.cli.stand_ins import Run, StandIn

MECHANISM = "private-prediction"
PAPER = (
    "--set",
    "batch_size=64",
    "--set",
    "clip=9",
    "--set",
    "temperature=1.5",
    "--delta",
    "2.9053e-06",
)


def test_the_papers_number_of_tokens(exchequer: Run) -> None:
    """Paper 001, Table 10: s = 64, c = 9, τ = 1.5 and ε = 10 leave 373 tokens."""
    found = exchequer(
        "price", MECHANISM, *PAPER, "--fit", "tokens_per_batch", "--epsilon", 10, "--json"
    )
    assert found.exit_code == 0
    quote = json.loads(found.stdout)
    assert quote["parameters"]["tokens_per_batch"] == 373
    assert quote["fit"] == {"field": "tokens_per_batch", "value": 373}
    assert quote["dp"]["epsilon"] <= 10
    assert quote["dp"]["delta"] == 2.9053e-06


def test_one_token_more_costs_more_than_was_fitted(exchequer: Run) -> None:
    found = exchequer("price", MECHANISM, *PAPER, "--set", "tokens_per_batch=374", "--json")
    assert json.loads(found.stdout)["dp"]["epsilon"] > 10


def test_json_has_the_keys_of_the_contract(exchequer: Run) -> None:
    quote = json.loads(exchequer("price", MECHANISM, "--json").stdout)
    keys = ["mechanism", "parameters", "neighbours", "dp", "ex_post", "secret", "breakdown"]
    assert list(quote) == keys
    assert {"epsilon", "delta", "rdp", "event"} <= set(quote["dp"])
    assert quote["neighbours"] == "add-remove"
    assert quote["ex_post"] is None
    assert quote["secret"] is None
    assert all(math.isfinite(value) for value in quote["dp"]["rdp"].values())


def test_replace_one_costs_more(exchequer: Run) -> None:
    epsilon = {
        relation: json.loads(
            exchequer("price", MECHANISM, "--neighbours", relation, "--json").stdout
        )["dp"]
        for relation in ("add-remove", "replace-one")
    }
    assert epsilon["replace-one"]["epsilon"] > 1.5 * epsilon["add-remove"]["epsilon"]


def test_records_of_a_unit_cost_as_a_smaller_batch(exchequer: Run) -> None:
    two = exchequer("price", MECHANISM, "--max-records-per-unit", 2, "--json")
    half = exchequer("price", MECHANISM, "--set", "batch_size=32", "--json")
    assert json.loads(two.stdout)["dp"] == json.loads(half.stdout)["dp"]


def test_terms_fill_in_the_number_of_batches(exchequer: Run) -> None:
    found = exchequer("price", MECHANISM, "--public-size", 1280, "--labels", "good, bad", "--json")
    assert json.loads(found.stdout)["parameters"]["batches_per_label"] == 10


def test_text_values_stay_text(exchequer: Run) -> None:
    found = exchequer("price", MECHANISM, "--set", "template=Again: {record}\n", "--json")
    assert json.loads(found.stdout)["parameters"]["template"] == "Again: {record}\n"


def test_the_table_shows_price_and_fit(exchequer: Run) -> None:
    found = exchequer("price", MECHANISM, *PAPER, "--fit", "tokens_per_batch", "--epsilon", 10)
    assert found.exit_code == 0
    assert "tokens_per_batch = 373" in found.stdout
    assert "ε 9.985" in found.stdout


BAD = [
    (("price", "private-predictoin"), ("mechanism", "private-prediction")),
    (
        ("price", MECHANISM, "--set", "tokens=3"),
        ("tokens", "unknown parameter", "tokens_per_batch"),
    ),
    (("price", MECHANISM, "--set", "batch_size=-1"), ("batch_size", "-1", "from 1")),
    (("price", MECHANISM, "--set", "batch_size=1.5"), ("batch_size", "a whole number")),
    (("price", MECHANISM, "--set", "batch_size=true"), ("batch_size", "a whole number")),
    (("price", MECHANISM, "--set", "clip=NaN"), ("clip", "nan", "finite")),
    (("price", MECHANISM, "--set", "clip=Infinity"), ("clip", "inf")),
    (("price", MECHANISM, "--set", "clip=1e999"), ("clip", "inf")),
    (("price", MECHANISM, "--set", "clip=0"), ("clip", "from 1e-06")),
    (("price", MECHANISM, "--set", "temperature=warm"), ("temperature", "'warm'", "a number")),
    (("price", MECHANISM, "--set", "aggregation=median"), ("ex_post_cap", "above 0")),
    (("price", MECHANISM, "--set", "template=none"), ("template", "{record}")),
    (("price", MECHANISM, "--set", "clip"), ("--set", "'clip'", "KEY=VALUE")),
    (("price", MECHANISM, "--set", "=3"), ("--set", "KEY=VALUE")),
    (("price", MECHANISM, "--set", "clip=1", "--set", "clip=2"), ("clip", "twice")),
    (("price", MECHANISM, "--neighbours", "siblings"), ("--neighbours", "siblings", "replace-one")),
    (("price", MECHANISM, "--delta", "nan"), ("--delta", "nan", "plain digits")),
    (("price", MECHANISM, "--delta", "0"), ("--delta", "above 0")),
    (("price", MECHANISM, "--delta", "1"), ("--delta", "below 1")),
    (("price", MECHANISM, "--public-size", "0"), ("--public-size", "from 1")),
    (("price", MECHANISM, "--max-records-per-unit", "-2"), ("--max-records-per-unit", "from 1")),
    (("price", MECHANISM, "--fit", "tokens_per_batch"), ("--fit", "--epsilon")),
    (("price", MECHANISM, "--epsilon", "3"), ("--epsilon", "--fit")),
    (("price", MECHANISM, "--fit", "tokens_per_batch", "--epsilon", "nan"), ("--epsilon", "nan")),
    (("price", MECHANISM, "--fit", "tokens_per_batch", "--epsilon", "-1"), ("--epsilon", "-1")),
    (
        ("price", MECHANISM, "--fit", "tokens_per_batch", "--epsilon", "0"),
        ("tokens_per_batch", "no value"),
    ),
    (
        ("price", MECHANISM, "--fit", "colour", "--epsilon", "1"),
        ("fit", "colour", "tokens_per_batch"),
    ),
    (("price", MECHANISM, "--fit", "template", "--epsilon", "1"), ("fit", "template")),
    (("price", MECHANISM, "--fit", "record_tokens", "--epsilon", "1"), ("record_tokens", "price")),
    (
        ("price", MECHANISM, "--set", "clip=2", "--fit", "clip", "--epsilon", "1"),
        ("clip", "set and fitted"),
    ),
    (("price", MECHANISM, "--dataset", "reviews", "--delta", "0.1"), ("--delta", "dataset")),
    (("price", MECHANISM, "--dataset", "reviews", "--set", "clip=NaN"), ("clip", "nan")),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=" ".join)
def test_bad_input_names_the_field_and_what_is_allowed(
    exchequer: Run, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    found = exchequer(*words)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert all(text in found.stderr for text in said), found.stderr
    assert len(found.stderr.strip().splitlines()) == 1  # a sentence per field


def test_every_wrong_field_has_its_own_sentence(exchequer: Run) -> None:
    found = exchequer(
        "price", MECHANISM, "--set", "clip=-1", "--set", "batch_size=x", "--set", "z=1"
    )
    assert [line.split(":")[1].strip() for line in found.stderr.splitlines()] == [
        "batch_size",
        "clip",
        "z",
    ]


def test_with_a_dataset_the_server_is_asked(
    exchequer: Run, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    answer = json.loads(exchequer("price", MECHANISM, "--json").stdout)
    on = {
        "name": "reviews",
        "decision": "NeedsApproval",
        "refusal": {},
        "filters": [],
        "jobs_of_this_shape": 3,
    }
    server.answers += [(200, answer | {"dataset": on})] * 2
    asked = (
        "price",
        MECHANISM,
        "--set",
        "clip=9",
        "--fit",
        "tokens_per_batch",
        "--dataset",
        "reviews",
    )
    quote = json.loads(exchequer(*asked, "--json").stdout)
    assert quote["fit"] == {
        "field": "tokens_per_batch",
        "value": answer["parameters"]["tokens_per_batch"],
    }
    assert quote["dataset"] == on
    method, path, _, body = server.requests[0]
    assert (method, path) == ("POST", "/api/v1/datasets/reviews/quote")
    sent = {"mechanism": MECHANISM, "parameters": {"clip": 9}, "fit": "tokens_per_batch"}
    assert json.loads(body) == sent
    assert "waits for a steward's approval" in exchequer(*asked).stdout


def test_without_a_server_a_dataset_can_not_be_priced(exchequer: Run) -> None:
    found = exchequer("price", MECHANISM, "--dataset", "reviews")
    assert found.exit_code == 3
    assert "exchequer stack up" in found.stderr


def test_a_share_is_of_a_dataset(exchequer: Run) -> None:
    found = exchequer("price", "noisy-count", "--share", 0.1)
    assert found.exit_code == 2
    assert "--share" in found.stderr


PROPOSAL = {
    "goal": "texts",
    "share": 0.25,
    "outlook": {"verdict": "thin", "sentence": "Thin: 9 texts.", "floor": 0.03, "noise": None},
    "mechanism": MECHANISM,
    "model": "small",
    "parameters": {"clip": 4.0, "rounds": 3},
    "output": {
        "what": "texts",
        "number": 9,
        "tokens": 48,
        "bound": "at least",
        "sentence": "at least 9 texts, of at most 48 tokens each",
    },
    "lacks": None,
    "notes": ["nobody knows which batch a unit lies in"],
}


def test_a_proposal_is_told_and_saved_as_a_request(
    exchequer: Run, server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    server.answers += [(200, PROPOSAL)] * 2
    told = exchequer("ask", "reviews", "--share", 0.25).stdout
    assert "Thin: 9 texts." in told
    assert "25% of what is left" in told
    assert "nobody knows which batch" in told
    method, path, _, _ = server.requests[0]
    assert (method, path) == ("GET", "/api/v1/datasets/reviews/proposal?goal=texts&share=0.25")
    file = tmp_path / "job.json"
    told = exchequer("ask", "reviews", "-o", file).stdout
    assert "exchequer job submit" in told
    assert json.loads(file.read_text()) == {
        "dataset": "reviews",
        "purpose": "",
        "mechanism": MECHANISM,
        "model": "small",
        "parameters": PROPOSAL["parameters"],
    }


def test_what_is_not_enough_is_said_and_never_saved(
    exchequer: Run, server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXCHEQUER_URL", server.url)
    outlook = {"verdict": "not enough", "sentence": "Not enough: …", "floor": None, "noise": None}
    nothing = {"mechanism": None, "parameters": {}, "output": None, "outlook": outlook}
    server.answers.append((200, PROPOSAL | nothing))
    file = tmp_path / "job.json"
    found = exchequer("ask", "reviews", "-o", file)
    assert "Not enough" in found.stdout
    assert found.exit_code == 1
    assert not file.exists()


# --- events of other tools ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "event"),
    [
        (
            [[1.0, 0.01, 1000]],
            {
                "type": "self_composed",
                "event": {
                    "type": "poisson_sampled",
                    "probability": 0.01,
                    "event": {"type": "gaussian", "noise_multiplier": 1.0},
                },
                "count": 1000,
            },
        ),
        (
            {"class_name": "GaussianDpEvent", "noise_multiplier": 2},
            {"type": "gaussian", "noise_multiplier": 2.0},
        ),
        (
            {"epsilon": 0.5, "delta": 1e-7},
            {"type": "epsilon_delta", "epsilon": 0.5, "delta": 1e-7},
        ),
        ({"type": "zcdp", "rho": 0.1}, {"type": "zcdp", "rho": 0.1}),
    ],
    ids=["opacus", "dp-accounting", "stated", "ours"],
)
def test_an_event_of_any_tool_is_priced(
    exchequer: Run, tmp_path: Path, stated: object, event: object
) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(stated))
    quote = json.loads(exchequer("price", "--event", file, "--json").stdout)
    assert quote["dp"]["event"] == event
    assert 0 < quote["dp"]["epsilon"] < 4
    assert quote["mechanism"] is None
    assert "ε" in exchequer("price", "--event", file).stdout


def test_ours_is_written_as_dp_accountings(exchequer: Run, tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text("[[1.0, 0.01, 1000]]")
    found = exchequer("price", "--event", file, "--as-dp-event")
    written = json.loads(found.stdout)
    assert written["class_name"] == "SelfComposedDpEvent"
    file.write_text(found.stdout)  # and is read back
    again = json.loads(exchequer("price", "--event", file, "--as-dp-event", "--json").stdout)
    assert again == written
    count = json.loads(exchequer("price", "noisy-count", "--as-dp-event", "--json").stdout)
    assert count["class_name"] == "LaplaceDpEvent"


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("[[1.0, 0.01, 1000]]", ["--set", "a=1"], "--set"),
        ("[[1.0, 0.01, 1000]]", ["--fit", "a", "--epsilon", "1"], "--fit"),
        ("[[1.0, 0.01, 1000]]", ["noisy-count"], "MECHANISM"),
        ("nonsense", [], "--event"),
        ("[[1.0, 2.0, 1000]]", [], "event[0].probability"),
        ('{"epsilon": 1, "delta": 1e-6}', ["--delta", "1e-7"], "the δ of its"),
        ('{"type": "exponential", "shift": 0.1}', ["--as-dp-event"], "'exponential'"),
    ],
)
def test_an_event_that_has_no_price_is_told_why(
    exchequer: Run, tmp_path: Path, text: str, arguments: list[str], says: str
) -> None:
    file = tmp_path / "event.json"
    file.write_text(text)
    found = exchequer("price", *arguments, "--event", file)
    assert found.exit_code != 0
    assert says in found.output
