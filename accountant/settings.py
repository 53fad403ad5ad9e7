"""Settings from the environment, each with a default that serves a laptop.

One object, read once per process by `load()`. Secrets live in files of mode 0600 below `home/keys`,
made on first use, or in the environment; they are never printed.
"""

import os
import re
import secrets
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from accountant.core.files.private import private_draft
from accountant.core.privacy.units import is_plain
from accountant.rights import KEYS, Process

KEY_BYTES = 32
#: A path below which the service may lie: names of plain characters, and none of dots alone.
PATH = r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*"


def _default_home() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "exchequer"


class Settings(BaseSettings):
    """All settings. The environment variable is EXCHEQUER_ followed by the name in capitals."""

    model_config = SettingsConfigDict(env_prefix="EXCHEQUER_", frozen=True, allow_inf_nan=False)

    home: Path = Field(default_factory=_default_home, description="state of the local stack")
    database_url: str | None = Field(
        None, validation_alias="DATABASE_URL", description="replaces the embedded PostgreSQL"
    )
    database_owner_url: str | None = Field(
        None,
        validation_alias="DATABASE_OWNER_URL",
        description="the same database as the owner of its tables, for migrations only",
    )
    broker_url: str | None = Field(
        None, validation_alias="BROKER_URL", description="replaces the embedded Valkey"
    )
    runs_as: Process | None = Field(
        None,
        description="which process this is; it then opens its own keys only. Nothing: all of them",
    )
    keys: Path | None = Field(None, description="folder of the keys; nothing: home/keys")
    ledger_log: Path | str | None = Field(
        None,
        description="folder or address of an object store (s3://…), not in the database's keeping, "
        "to which all ledger entries also go",
    )
    public_log: Path | str | None = Field(
        None,
        description="folder or address of an object store (s3://…) in which the log is published; "
        "exports then prove their place in it",
    )
    public_log_seconds: float = Field(
        60.0,
        ge=0,
        description="the signer publishes the log so often; 0: only `ledger publish-log` does",
    )
    signed_logs_folder: str | None = Field(
        None,
        description="folder or address of an object store (s3://…) where the signer keeps the "
        "heads that it signed, on storage that shares no backup with database or log; nothing: "
        "home/signed-logs",
    )
    public_log_name: str = Field(
        "exchequer",
        description="what the published log calls itself: an address without its scheme",
    )
    serve_public_log: bool = Field(
        False,
        description="the web server hands the published log, with names of datasets, to anybody "
        "at /log/",
    )
    public_log_witnesses: dict[str, str] = Field(
        {}, description='JSON: who has to cosign the published log, as {"address": "key"}'
    )
    host: str = Field("127.0.0.1", description="address that the web server binds")
    port: int = Field(8750, ge=1, le=65535, description="port that the web server binds")
    probe_address: str | None = Field(
        None,
        pattern=r"^.+:\d{1,5}$",
        description="host:port where the web server answers probes and /metrics, to anybody who "
        "reaches it; nothing: nowhere",
    )
    data_roots: str = Field(
        "", description="folders or URLs, separated by '|', under which workers may open data"
    )
    model_roots: str = Field(
        "", description="folders, separated by '|', under which workers may open models"
    )
    model_hub: bool = Field(False, description="allow model names that the hub resolves")
    model_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="type that models run in; auto: bfloat16 if saved so and fast (CUDA, AMX, "
        "AVX512-BF16), else float32",
    )
    decoding_gib: float | None = Field(
        None,
        gt=0,
        description="room for contexts decoded together; nothing: 80% of a GPU's, 4 of a host's",
    )
    results_url: str | None = Field(None, description="where outputs are kept; any fsspec URL")
    lease_seconds: float = Field(
        60.0, gt=0, description="a worker's claim lasts this long unrenewed"
    )
    resend_seconds: float = Field(120.0, gt=0, description="send an unclaimed job again after this")
    max_attempts: int = Field(3, ge=1, description="attempts under one reservation")
    hardware: dict[
        Annotated[str, Field(pattern=r"^(cpu|gpu)[a-z0-9-]*$")], Annotated[float, Field(gt=0)]
    ] = Field(
        {},
        description='JSON: GiB of memory of each class of workers, as {"cpu": 2, "gpu80": 80}; a '
        "job waits for the smallest that holds its model and a batch. Nothing: any worker takes it",
    )
    gpus_per_worker: int = Field(
        1,
        ge=1,
        description="GPUs that the launcher gives one worker, for models that one does not hold; "
        "a class's GiB are counted as those of so many",
    )
    fan_out: int = Field(
        0,
        ge=0,
        le=1000,
        description="workers that may share the batches of one job; 0: as many as serve its class "
        "when it is admitted",
    )
    soft_limit_seconds: int = Field(
        21_000,
        gt=0,
        description="an attempt ends itself after this; a dataset's policy may say less",
    )
    hard_limit_seconds: int = Field(
        21_600, gt=0, description="the process of an attempt is killed after this"
    )
    watchdog_seconds: float = Field(
        300.0,
        ge=0,
        description="an idle worker restarts itself where work has waited this long; 0: never",
    )
    leftover_seconds: float = Field(
        600.0, gt=0, description="time between looks for abandoned staged outputs"
    )
    uploads_folder: str | None = Field(
        None,
        description="folder or address of an object store (s3://…) of uploaded files, a data "
        "root of its own; nothing: home/uploads",
    )
    upload_bytes: int = Field(
        512 * 2**20, ge=1, description="most bytes of an uploaded file, as it is sent"
    )
    upload_uncompressed_bytes: int = Field(4 * 2**30, ge=1, description="the same, unpacked")
    upload_ratio: int = Field(
        200, ge=1, description="most bytes that a byte of a file may unpack to"
    )
    upload_line_bytes: int = Field(
        4 * 2**20, ge=1, description="longest line of an uploaded text file"
    )
    upload_columns: int = Field(1000, ge=1, description="most columns of an uploaded file")
    upload_hours: float = Field(
        72.0, gt=0, description="an upload that nothing uses is destroyed after this"
    )
    notice_networks: str = Field(
        "",
        description="networks besides the public internet, separated by '|', that notices may "
        "reach",
    )
    notice_first_seconds: float = Field(
        5.0, gt=0, description="wait before a message is sent again; four times as long each time"
    )
    notice_hours: float = Field(24.0, gt=0, description="a notice is given up after this")
    smtp_host: str | None = Field(
        None, description="mail server for notices; nothing: no mail is sent"
    )
    smtp_port: int = Field(587, ge=1, le=65535, description="its port")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="how it is spoken to"
    )
    smtp_user: str | None = Field(None, description="the name to sign in with there, if any")
    smtp_password: SecretStr | None = Field(None, description="its password")
    mail_from: str = Field("exchequer@localhost", description="the sender of notices")
    mail_domains: str = Field(
        "",
        description="domains, separated by '|', of the addresses that people may have notices sent "
        "to",
    )
    endpoint_networks: str = Field(
        "",
        description="networks besides the public internet, separated by '|', that endpoints may "
        "lie in",
    )
    endpoint_keys: dict[str, SecretStr] = Field(
        {},
        description='JSON: the key of each registered endpoint that asks for one, as {"name": '
        '"key"}',
    )
    endpoint_seconds: float = Field(
        120.0, gt=0, description="an endpoint's answer is waited for so long, then asked for again"
    )
    free_jobs_per_person: int = Field(
        10,
        ge=1,
        description="jobs that cost nothing which one person may have waiting or running at a time",
    )
    waiting_jobs_per_person: int = Field(
        100,
        ge=1,
        description="jobs with a price that one person may have waiting for a worker at a time",
    )
    approvals_per_person: int = Field(
        50,
        ge=1,
        description="jobs that one person may have waiting for a steward's approval at a time",
    )
    data_checks_per_day: int = Field(
        20,
        ge=1,
        description="corpora and versions of data that one person may have compared with all data "
        "a day",
    )
    new_account_hours: float = Field(
        24.0,
        ge=0,
        le=24 * 365,
        description="an account that is new, was reset or became a steward's confirms nothing for "
        "so long",
    )
    results_every_seconds: int = Field(
        60,
        ge=0,
        le=86_400,
        description="the policy's field of that name for a dataset registered without one; 0: "
        "nothing",
    )
    requests_per_person: int = Field(
        6000, ge=0, description="API requests a minute, by the person of the token; 0: no limit"
    )
    requests_per_address: int = Field(
        12_000, ge=0, description="API requests a minute from one address; 0: no limit"
    )
    sign_ins_per_address: int = Field(
        120, ge=0, description="tries to sign in by password a minute from one address; 0: no limit"
    )
    session_hours: float = Field(12.0, gt=0, description="a sign-in in the browser ends after this")
    session_idle_minutes: float = Field(
        60.0, gt=0, description="a sign-in in the browser ends when it was not used for this long"
    )
    second_factor: bool = Field(
        False, description="the password of somebody who has a passkey opens nothing by itself"
    )
    fresh_minutes: float = Field(
        15.0,
        ge=0,
        description="allowing, confirming, changing a policy, people or roles and adding a passkey "
        "on a page ask who one is where that was shown longer ago; 0: never",
    )
    session_log_days: float = Field(
        30.0, ge=0, description="sessions that ended are listed for so long; 0: for ever"
    )
    sign_in_log_days: float = Field(
        400.0,
        ge=0,
        description="the log of tries to sign in is kept so long, 90 at least; 0: for ever",
    )
    activity_log_days: float = Field(
        0.0, ge=0, description="the log of who did what is kept so long, 90 at least; 0: for ever"
    )
    trusted_proxies: int = Field(
        0,
        ge=0,
        le=10,
        description="proxies before the web server whose X-Forwarded headers tell the truth",
    )
    proxy_addresses: str = Field(
        "127.0.0.1|::1", description="addresses and networks of those proxies, separated by '|'"
    )
    public_url: str | None = Field(
        None,
        description="the address that people's browsers use, where a proxy stands between; with "
        "the path, if the service has one path of the host",
    )
    oidc_issuer: str | None = Field(
        None, description="OpenID Connect provider to sign in with; nothing: local accounts only"
    )
    oidc_name: str = Field("single sign-on", description="what the sign-in page calls the provider")
    oidc_client_id: str | None = Field(None, description="this service's name at the provider")
    oidc_client_secret: SecretStr | None = Field(None, description="its secret there")
    oidc_client_secret_file: Path | None = Field(
        None, description="a file that holds the secret instead"
    )
    oidc_scope: str = Field(
        "openid profile", description="scopes that are asked for at the provider"
    )
    oidc_prompt: str | None = Field(
        None,
        description="what the provider asks for at each sign-in, as consent; nothing: its way",
    )
    oidc_check_minutes: float = Field(
        60.0,
        gt=0,
        le=60,
        description="sessions and tokens of people from the provider rest where it has not "
        "confirmed them for so long; it is asked after half of that",
    )
    oidc_acr: str | None = Field(
        None,
        description="how people must have signed in there before sensitive acts (acr); nothing: in "
        "any way",
    )
    oidc_roles_claim: str = Field(
        "groups", description="claim of the id token that the roles are read from"
    )
    oidc_roles: dict[str, str] = Field(
        {},
        description='JSON: which value of that claim gives which role, as {"privacy-team": '
        '"steward"}',
    )

    @field_validator("*", mode="before")
    @classmethod
    def _require_plain_digits(cls, value: object, info: ValidationInfo) -> object:
        """Return the value. Raises ValueError for a number that is not typed in plain digits."""
        about = cls.model_fields[str(info.field_name)]
        kinds = {about.annotation, *get_args(about.annotation)}
        if isinstance(value, str) and value and kinds & {int, float} and not is_plain(value):
            raise ValueError(
                f"{value!r} is not a number in plain digits; use one such as 30 or 2.5"
            )
        return value

    @field_validator("public_log")
    @classmethod
    def _read_public_log(cls, value: Path | str | None) -> Path | str | None:
        return None if value is None else _place(value)

    @field_validator("public_url")
    @classmethod
    def _read_public_url(cls, value: str | None) -> str | None:
        """Return the address without its last slash. Raises ValueError if no link can begin so."""
        if value is None:
            return None
        parts = urlsplit(value)
        plain = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and not (parts.query or parts.fragment)
        )
        if not plain or "@" in parts.netloc or re.fullmatch(PATH, parts.path.rstrip("/")) is None:
            raise ValueError(
                "it is no address that links can begin with; allowed: https://HOST or "
                "https://HOST/PATH, a path of letters, digits and . _ ~ -"
            )
        return value.rstrip("/")

    @property
    def public_path(self) -> str:
        """The path of the public address, as "/exchequer"; "" if it has none."""
        return "" if self.public_url is None else urlsplit(self.public_url).path

    @property
    def attempt_seconds(self) -> int:
        """The time limit of an attempt in seconds; it ends before its process would be killed."""
        return max(1, min(self.soft_limit_seconds, self.hard_limit_seconds * 19 // 20))

    @property
    def mail_domain_list(self) -> list[str]:
        """The domains that notices may go to; none where no mail server is named."""
        domains = (part.strip().lower() for part in self.mail_domains.split("|"))
        return [domain for domain in domains if domain] if self.smtp_host else []

    @property
    def results(self) -> str:
        """The fsspec URL of the results folder, without a trailing slash."""
        return (self.results_url or str(self.home / "results")).rstrip("/")

    @property
    def data_root_list(self) -> list[str]:
        """The configured data roots and the folder of uploads; nothing else may be opened."""
        return [*(root for root in self.data_roots.split("|") if root), str(self.uploads)]

    @property
    def signed_logs(self) -> Path | str:
        """The folder of the heads that the signer signed, or their address in an object store."""
        return _place(self.signed_logs_folder or self.home / "signed-logs")

    @property
    def uploads(self) -> Path | str:
        """The folder of uploaded files, or their address in an object store."""
        return _place(self.uploads_folder or self.home / "uploads")

    @property
    def model_root_list(self) -> list[str]:
        """Configured model roots; an empty list forbids every path."""
        return [root for root in self.model_roots.split("|") if root]

    def secret(self, name: str) -> bytes:
        """32 secret bytes called `name`: EXCHEQUER_KEY_<NAME> as hex, or keys/<name>, made if
        absent.

        Creation is exclusive, so two processes that start together agree on one key. Raises
        RuntimeError where the key is another process's.
        """
        if self.runs_as is not None and self.runs_as not in KEYS[name]:
            whose = " and ".join(KEYS[name])
            raise RuntimeError(f"the key {name!r} is for {whose}, and this is {self.runs_as}")
        from_environment = os.environ.get(f"EXCHEQUER_KEY_{name.upper()}")
        if from_environment:
            return _key(name, from_environment)
        folder = self.keys or self.home / "keys"
        path = folder / name
        if not path.exists():
            # Where another process is first, its key stands.
            with (
                private_draft(path, secrets.token_hex(KEY_BYTES)) as draft,
                suppress(FileExistsError),
            ):
                os.link(draft, path)
        return _key(name, path.read_text())


def _place(named: Path | str) -> Path | str:
    """Return a folder as an absolute path, and an address of an object store as it is."""
    named = str(named).removeprefix("file://")
    return named.rstrip("/") if "://" in named else Path(named).absolute()


def _key(name: str, text: str) -> bytes:
    """Return a key as kept: 64 hexadecimal digits. Raises RuntimeError for anything else."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise RuntimeError(f"the key {name!r} is not {2 * KEY_BYTES} hexadecimal digits")
    return key


@lru_cache(maxsize=1)
def load() -> Settings:
    """Return the settings of this process."""
    return Settings()
