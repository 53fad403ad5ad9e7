"""The facts of a data card, for readers of the job. Public quantities only, for every role."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import Conflict
from accountant.core.ledger import data_card
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.export_formats import read_document
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import from_json, releases, to_json
from accountant.core.privacy.secret_batches import has_secret_batches, with_known_batches
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries import datasets, jobs
from accountant.schema.jobs import Card
from accountant.transactions.artifacts import of_job


def card(engine: Engine, job_id: UUID, viewer: Actor) -> Card:
    """Return the data card of a job. Raises NotFound, and Conflict where nothing is published."""
    job = jobs.job(engine, job_id, viewer).document()
    if job["output_sha256"] is None:
        raise Conflict(
            f"the job is {job['state'].replace('_', ' ')}: only what is published has a data card"
        )
    dataset = datasets.dataset(engine, job["dataset"], viewer).document()
    with reading(engine) as connection:
        entries = _entries(connection, job_id)
        reserve, charge = entries[0], entries[-1]
        body = reserve["body"]
        source = body["source"]
        guarantee, loss = _guarantee(connection, reserve, charge, dataset)
        head = _head(connection, job_id)
        artifacts = [{"name": row.name, "sha256": row.sha256} for row in of_job(connection, job_id)]
        model = _model(connection, body["model"])
    mechanism = mechanisms.get(job["mechanism"])
    ledger = {"reserve": _named(reserve), "charge": _named(charge), "head": head}
    return Card(
        format=data_card.FORMAT,
        version=data_card.VERSION,
        job=job["id"],
        dataset={
            "name": dataset["name"],
            "unit": dataset["unit"],
            "neighbours": body["terms"]["neighbours"],
            "max_records_per_unit": body["terms"]["max_records_per_unit"],
            **_groups(body["terms"]),
        },
        mechanism={name: getattr(mechanism, name) for name in ("id", "title", "summary", "source")},
        guarantee=guarantee,
        privacy_loss=loss,
        reserved=_price(body, body["event"]),
        charged=_price(body, charge["body"]["event"]),
        ex_post_cap=job["ex_post_cap"] if job["ex_post_cap"] is None else str(job["ex_post_cap"]),
        statement={"text": dataset["statements"][0]["text"], "after_entry": dataset["entries"]},
        parameters=job["parameters"],
        model=model,
        lineage=source,
        output={"sha256": job["output_sha256"]},
        artifacts=artifacts,
        ledger=ledger,
        cite=data_card.citation(
            job["id"],
            dataset["name"],
            mechanism.title,
            ledger["charge"],
            job["output_sha256"],
            public=mechanism.public,
        ),
        limits=list(data_card.LIMITS),
    )


def _entries(connection: Connection, job_id: UUID) -> list[dict[str, Any]]:
    """Return the job's entries in order, in plain values, with their hashes."""
    table = tables.entries
    query = (
        select(table.c.document, table.c.hash).where(table.c.job_id == job_id).order_by(table.c.seq)
    )
    rows = connection.execute(query).all()
    return [{**opened(read_document(row.document)), "hash": row.hash} for row in rows]


def _head(connection: Connection, job_id: UUID) -> dict[str, Any]:
    """Return the newest entry of the ledger in which a job stands."""
    table = tables.entries
    dataset = select(table.c.dataset_id).where(table.c.job_id == job_id).limit(1)
    query = select(table.c.seq, table.c.kind, table.c.hash).where(
        table.c.dataset_id == dataset.scalar_subquery()
    )
    row = connection.execute(query.order_by(table.c.seq.desc()).limit(1)).one()
    return _named(row._asdict())


def _groups(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared names of groups; never how many records each has."""
    return {"groups": terms["groups"]} if terms.get("groups") else {}


def _named(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"seq": entry["seq"], "kind": entry["kind"], "hash": entry["hash"]}


def _price(reserve: Mapping[str, Any], event: Any) -> dict[str, Any]:
    """Return an event's price alone at the job's delta, or None if nothing was released."""
    delta = reserve["terms"]["delta"]
    if event is None:
        return {"epsilon": None, "delta": delta}
    return {"epsilon": epsilon_alone(from_json(event), delta)[0], "delta": delta}


def _guarantee(
    connection: Connection,
    reserve: Mapping[str, Any],
    charge: Mapping[str, Any],
    dataset: Mapping[str, Any],
) -> tuple[str, dict[str, Any] | None]:
    """Return the guarantee in one true sentence, and its (ε, δ) or None if it has none.

    After a correction it is that of the corrected event.
    """
    body, terms = reserve["body"], reserve["body"]["terms"]
    source = body["source"]
    event = body["event"] if charge["kind"] == "COMMIT" else charge["body"]["event"]
    spends = event is not None and bool(releases(from_json(event)))
    if "job" in source and not spends:
        sentence, loss = _of_source(connection, source, dataset)
        return data_card.inherited(source, sentence), loss
    plain_event = (
        with_known_batches(from_json(event))
        if spends and has_secret_batches(from_json(event))
        else None
    )
    cap = body.get("ex_post", {}).get("cap")
    held = data_card.Guarantee(
        epsilon=_price(body, event)["epsilon"] if spends else None,
        delta=terms["delta"],
        neighbours=terms["neighbours"],
        unit=dataset["unit"],
        records_per_unit=terms["max_records_per_unit"],
        ex_post_cap=None if cap is None else to_decimal(int(cap), EPSILON_UNITS),
        secret=body.get("secret", {}).get("release") is not None,
        to_key_holders=_price(body, to_json(plain_event))["epsilon"]
        if plain_event is not None
        else None,
    )
    corrected = "" if charge["kind"] == "COMMIT" else f" (as corrected by entry {charge['seq']})"
    loss = {"epsilon": held.epsilon or 0.0, "delta": held.delta}
    known = not held.secret and held.ex_post_cap is None
    return data_card.sentence(held) + corrected, loss if known else None


def _of_source(
    connection: Connection, source: Mapping[str, Any], dataset: Mapping[str, Any]
) -> tuple[str | None, dict[str, Any] | None]:
    """Return the guarantee of the job whose release is read, whose own sources read data."""
    entries = _entries(connection, UUID(source["job"])) if "job" in source else []
    return _guarantee(connection, entries[0], entries[-1], dataset) if entries else (None, None)


def _model(connection: Connection, named: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the model with the bytes that the ledger holds, and what its steward declared."""
    if named is None:
        return None
    table = tables.models
    query = select(table.c.trained_on).where(table.c.name == named["name"])
    return {**named, "trained_on": connection.execute(query).scalar_one_or_none() or "not declared"}
