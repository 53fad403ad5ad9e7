"""Amounts that people type are plain ASCII digits, wherever they are typed."""

import pytest
from pydantic import ValidationError

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import EPSILON_UNITS, exact, round_allowance
from accountant.settings import Settings
from web.cli.answers import _number
from web.views import forms, job_form, schema_forms

UNPLAIN = [
    *(
        "1_0",
        "1_000.0",
        "1e1_0",
        "\u0663",
        "\uff11",
        "1\uff10",
        "\u00b9",
        "\u00bd",
        "\u096b",
        "\u06f5",
    ),
    *(" 1 0", "1 000", "1,5", "1.000,5", "1'000", "0x1", "0b1", "1e", "e1", ".", "1.2.3", "--1"),
    *(
        "inf",
        "Infinity",
        "-inf",
        "nan",
        "NaN",
        "1e400",
        "+1",
        "\u22121",
        "1\u200b",
        "10%",
        "ten",
        "1/2",
    ),
]


def refuses(read, *args) -> bool:
    try:
        read(*args)
    except (InvalidRequest, ValidationError, ValueError):
        return True
    return False


@pytest.mark.parametrize("text", UNPLAIN)
def test_nothing_reads_it_as_a_number(text):
    """By the ledger, a policy, a setting, the command line, and the three readers of forms."""
    assert refuses(exact, text)
    assert refuses(round_allowance, text, EPSILON_UNITS)
    for field in ("auto_approve_epsilon", "analyst_epsilon", "project_epsilon"):
        assert refuses(Policy(**{field: text}).check)
    for field in ("approval_days", "time_limit_seconds", "results_every_seconds"):
        assert refuses(Policy.model_validate, {field: text})
    for field in ("port", "lease_seconds", "session_hours", "approvals_per_person", "decoding_gib"):
        with pytest.raises(ValidationError):
            Settings.model_validate({field: text})
    for kind in (int, float):
        assert refuses(_number, "--x", kind, None, text)
    assert isinstance(forms.number(text), str)
    assert forms.typed(Policy, {"approval_days": text})["approval_days"] == text.strip()
    assert schema_forms._scalar(text, ["integer"]) == text
    assert isinstance(schema_forms._scalar(text, ["number"]), str)
    assert job_form._share({"share": text}) == 1.0
    terms = Terms(Neighbours.ADD_REMOVE, 1e-6, 1, 1000, (), (), ())
    count = mechanisms.get("noisy-count")
    stated = schema_forms.stated(count.schema, {"parameters.epsilon": text})
    assert refuses(count.parse, stated, terms)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1.", 1),
        ("1e-6", 1e-6),
        ("2.5E3", 2500),
        ("0", 0),
        ("007", 7),
    ],
)
def test_plain_digits_are_what_they_say(text, value):
    assert float(exact(text)) == value
    assert _number("--x", float, None, text) == value
    assert forms.number(text) == value
    assert schema_forms._scalar(text, ["number"]) == value
    assert Settings(decoding_gib=text).decoding_gib == value if value else True


@pytest.mark.parametrize(
    "epsilon", ["1_0", "\u0663", " 1 0", "1e400", "inf", "1,5", 1e29, True, None, [1]]
)
def test_an_allowance_over_the_api_and_on_its_page_is_refused(site, epsilon):
    body = {"epsilon": epsilon, "delta": "1e-6", "reason": "test"}
    answer = site.api("steward").post(f"/datasets/{site.bench.dataset}/allowance", body)
    assert answer.status_code == 422, answer.text
    if isinstance(epsilon, str):
        pages, where = site.pages("steward"), f"/datasets/{site.bench.dataset}/policy"
        sent = pages.post(where.replace("policy", "allowance"), where, **body)
        assert sent.status_code == 422
