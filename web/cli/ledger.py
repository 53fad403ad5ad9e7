"""`ledger`, `checkpoint` and `key list`: entries, exports, and the check of a live ledger."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.core.errors import invalid
from web.cli import bootstrap, completion
from web.cli.answers import Answer
from web.cli.options import Database, DatasetName, DatasetOption, Json, Output
from web.cli.output import (
    REFUSED,
    Failed,
    facts,
    minute,
    note,
    print_json,
    save,
    save_json,
    stop,
    table,
)
from web.cli.session import connect

FORMATS = ("jsonl", "csv")


def show(
    dataset: DatasetName,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    before: Annotated[int | None, typer.Option(help="Entries below this number.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every one, not a page only.")] = False,
) -> Answer:
    """Show entries, newest first."""
    with connect() as client:
        if everything:
            entries = list(client.whole_ledger(dataset))
        else:
            entries = client.ledger(dataset, before=before, limit=limit)
    yield entries
    yield entry_table(entries)


def entry_table(entries: list[dict[str, Any]]) -> Table:
    """Return entries as rows that fit 80 columns; the cost is that on the first filter."""
    from accountant.core.privacy.units import EPSILON_UNITS, to_decimal

    def cost(body: dict[str, Any]) -> str | None:
        renyi = (body.get("costs") or {}).get("renyi")
        return None if renyi is None else to_decimal(int(renyi["main"]), EPSILON_UNITS)

    rows = [
        (
            entry["seq"],
            entry["kind"],
            entry["at"][5:16].replace("T", " "),
            cost(entry["body"]),
            f"{entry['actor']}: {_what(entry)}",
        )
        for entry in entries
    ]
    return table(
        ["seq", "entry", "UTC", "cost", "who and what"], rows, right="seq cost", whole="entry UTC"
    )


def _what(entry: dict[str, Any]) -> str:
    body = entry["body"]
    match entry["kind"]:
        case "ALLOW":
            amounts = (
                f"ε {body['epsilon']}, δ {body['delta']}"
                if "epsilon" in body
                else "other allowances"
            )
            return f"{amounts}: {body['reason']}"
        case "RESERVE":
            approval = body["approval"]
            by = f"; {approval['by']} approved: {approval['reason']}" if approval else ""
            return f"{_job(entry)}{by}"
        case "REGISTER":
            version = body["version"]
            if "layout" in body:
                return f"version {version} found right"
            return f"terms of the data{', which never comes here' if version else ''}"
        case "POLICY":
            by = f"; {body['proposed_by']} proposed it" if body.get("proposed_by") else ""
            return f"the policy from here on{by}"
        case _:
            outcome = body.get("outcome") or body.get("reason") or ""
            return f"{_job(entry)}: {outcome}" if outcome else _job(entry)


def _job(entry: dict[str, Any]) -> str:
    return entry.get("job_name") or f"job {str(entry['job'])[:8]}"


def entry(dataset: DatasetName, seq: int) -> Answer:
    """Show an entry in full, with its price and what was left."""
    with connect() as client:
        entry = client.entry(dataset, seq)
    yield entry
    rows = (
        (
            name.replace("_", " "),
            value if isinstance(value, str | int) else json.dumps(value, indent=1),
        )
        for name, value in entry.items()
    )
    yield facts(rows)


def find(
    dataset: DatasetOption = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="ALLOW|RESERVE|COMMIT|…", help="What was entered."),
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Who.")] = None,
    mechanism: Annotated[str | None, typer.Option()] = None,
    job: Annotated[str | None, typer.Option()] = None,
    since: Annotated[str | None, typer.Option(metavar="DAY")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
) -> Answer:
    """Find entries of all datasets, newest first."""
    wanted = {"dataset": dataset, "kind": kind, "actor": actor, "mechanism": mechanism, "job": job}
    with connect() as client:
        entries = list(islice(client.entries(**wanted, since=since, until=until), limit))
    yield entries
    yield entry_table(entries)


def ex_post(dataset: DatasetName) -> Answer:
    """Show what ex-post jobs really cost. These figures are private."""
    with connect() as client:
        ex_post = client.ex_post(dataset)
    yield ex_post
    rows = [(job["job"], job["cap"], job["realized"]) for job in ex_post["jobs"]]
    yield table(["job", "cap", "realized"], rows, right="cap realized", whole="job")
    yield str(ex_post["note"])


def export(
    dataset: DatasetName,
    form: Annotated[str, typer.Option("--format", metavar="jsonl|csv")] = "jsonl",
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="Leave out names, reasons, prompts and what ex-post jobs really cost."
        ),
    ] = False,
    output: Output = "-",
    checkpoint: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keep a signed checkpoint beside the export.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Save a signed copy of a ledger, for `exchequer verify`."""
    if form not in FORMATS:
        raise invalid("--format", f"{form!r} is no format", ", ".join(FORMATS))
    if as_json and output == "-":
        raise invalid(
            "--json", "the export itself goes to standard output", "-o FILE beside --json"
        )
    with connect() as client:
        if checkpoint is not None:
            save_json(checkpoint, client.make_checkpoint(dataset))
        save(output, lambda file: client.save_ledger(dataset, form, file, public=public))
    if as_json:
        print_json({"file": output, "format": form, "public": public, "checkpoint": checkpoint})
    elif output != "-":
        note(f"saved {output}; check it with `exchequer verify {output}`")


def checkpoint(dataset: DatasetName, output: Output = "-", as_json: Json = False) -> None:
    """Sign what a ledger is now. All later exports must begin with it."""
    with connect() as client:
        checkpoint = client.make_checkpoint(dataset)
    save_json(output, checkpoint)
    if as_json and output != "-":
        print_json({"file": output, "seq": checkpoint["checkpoint"]["seq"]})


def checkpoints(
    dataset: Annotated[str | None, typer.Argument(autocompletion=completion.datasets)] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
) -> Answer:
    """List what was signed, newest first."""
    with connect() as client:
        if dataset is None:
            newest = list(islice(client.all_checkpoints(), limit))
        else:
            newest = client.checkpoints(dataset, limit=limit)
    yield newest
    if dataset is None:
        rows = [
            (
                document["dataset"],
                document["seq"],
                minute(document["at"]),
                document["problem"] or "holds",
            )
            for document in newest
        ]
        yield table(["dataset", "entry", "UTC", "checked now"], rows, right="entry", whole="UTC")
        return
    documents = [document["checkpoint"] for document in newest]
    rows = [
        (document["seq"], minute(document["at"]), document["head"][:16], document["key"][:16])
        for document in documents
    ]
    yield table(["entry", "UTC", "head", "key"], rows, right="entry", whole="UTC head key")


def keys() -> Answer:
    """List the keys that sign ledgers, oldest first."""
    with connect() as client:
        keys = client.keys()
    yield {"keys": keys}
    documents = [key["key"] for key in keys]
    rows = [
        (document["id"], minute(document["introduced_at"]), document["public"])
        for document in documents
    ]
    yield table(["key", "since (UTC)", "public bytes"], rows, whole="key")


def check(
    dataset: Annotated[str | None, typer.Argument(help="A dataset; or give --all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dataset.")] = False,
    database: Database = False,
) -> Answer:
    """Check the balances and jobs of a live ledger. If one is wrong, the exit code is 1."""
    if (dataset is None) is not everything:
        raise invalid("DATASET", "one dataset or all of them", "a name, or --all")
    if database:
        with bootstrap.database_up(bootstrap.settings()):
            problems_by_dataset = _checked_here(dataset)
    else:
        problems_by_dataset = _checked_there(dataset)
    yield {"ok": not any(problems_by_dataset.values()), "problems": problems_by_dataset}
    for name, problems in problems_by_dataset.items():
        yield f"{name}: {'ok' if not problems else f'{len(problems)} disagree'}"
        for problem in problems:
            yield f"  {problem}"
    if any(problems_by_dataset.values()):
        stop(REFUSED)


def _checked_there(dataset: str | None) -> dict[str, list[str]]:
    """Return the problems that the server finds, by dataset."""
    with connect() as client:
        names = [listed["name"] for listed in client.datasets()] if dataset is None else [dataset]
        return {name: client.check_ledger(name) for name in names}


def _checked_here(dataset: str | None) -> dict[str, list[str]]:
    """Return the problems found without a server, which has no time to read the whole log."""
    from uuid import UUID

    engine = bootstrap.engine(bootstrap.settings())
    from accountant.identities.actor import Actor
    from accountant.queries import datasets, integrity, log_comparison

    nobody = Actor(UUID(int=0), "bootstrap", frozenset({"auditor"}))
    names = (
        [listed["name"] for listed in datasets.datasets(engine, nobody)]
        if dataset is None
        else [dataset]
    )
    problems_by_name = {name: integrity.check(engine, name) for name in names}
    outside = log_comparison.whole(engine)
    if "" in outside:
        problems_by_name["the log outside the database"] = outside.pop("")
    for name, problems in outside.items():
        if dataset in (None, name):
            problems_by_name.setdefault(name, []).extend(
                problem for problem in problems if problem not in problems_by_name[name]
            )
    return problems_by_name


def recover(
    dataset: Annotated[
        str | None, typer.Option(help="This one alone; else all that are behind.")
    ] = None,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="A backup was put back, even if no entry is missing."),
    ] = False,
    lost: Annotated[
        bool,
        typer.Option("--lost", help="Go on though signed entries are lost. Run settle-loss next."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> Answer:
    """Write what is not in a database that was put back. Stop all services first.

    The log holds these entries, and each is checked. A job without an end may have read data. It is
    charged in full and runs no more.
    """
    configured = bootstrap.settings()
    with bootstrap.database_up(configured):
        engine = bootstrap.engine(configured, mending=True)
        _require_signed_log(engine, lost)
        from accountant.results import Results
        from accountant.transactions import recovery

        plans = recovery.plan(engine, dataset, restored=restored or lost)
        for plan in plans:
            note(_plan_told(plan))
        done = [plan for plan in plans if plan.problem is None]
        if done and not yes:
            typer.confirm("Write this into the database?", abort=True)
        for plan in done:
            recovery.recover(
                engine, plan, Results(configured.results).facts, configured.secret("identity")
            )
    left = [plan.dataset for plan in plans if plan.problem is not None]
    yield {
        "recovered": [
            {
                "dataset": ready_plan.dataset,
                "entries": len(ready_plan.missing),
                "charged": ready_plan.charged,
            }
            for ready_plan in done
        ],
        "problems": {plan.dataset: plan.problem for plan in plans if plan.problem is not None},
    }
    unseen = (
        ""
        if restored
        else "; if the database was restored, say --restored: jobs may have read since"
    )
    yield (
        f"nothing is behind the log{unseen}"
        if not plans
        else f"recovered: {len(done)}, left: {len(left)}"
    )
    if left:
        stop(REFUSED)


def _require_signed_log(engine: Any, lost: bool) -> None:
    """Say what comes next, and stop, where the log is not the one that was signed and marked.

    With `lost`, entries that are in neither log nor database are no reason to stop.
    """
    from accountant.transactions import losses, recovery

    problems = recovery.log_problems(engine)
    if not problems:
        return
    for problem in problems:
        note(f"the log: {problem}")
    lacking = losses.lacking(engine)
    for problem in lacking:
        note(f"the database: {problem}")
    if lacking and lost:
        return
    if lacking:
        raise Failed(
            "Entries that were signed are in neither. Put back the newest copy of the log's "
            "folder, then `exchequer ledger recover` again. If there is none, put back the newest "
            "copy of the database. Where no copy holds them, they are lost: `exchequer ledger "
            "recover --lost`, then two stewards with `exchequer ledger settle-loss`."
        )
    raise Failed(f"The database holds all that was signed and marked. {losses.NEW_LOG}")


def _plan_told(plan: Any) -> str:
    """Return what a recovery would do with one dataset, in a sentence or two."""
    if plan.problem is not None:
        return f"{plan.dataset}: can't be recovered: {plan.problem}"
    sentences = (
        f"{plan.dataset}: at entry {plan.database.seq} of {plan.log.seq}; {len(plan.missing)} "
        "to write"
    )
    if plan.charged:
        sentences += f"; {len(plan.charged)} unended jobs are charged in full and end"
    return sentences


def settle_loss(
    person: Annotated[str, typer.Argument(help="A steward of the datasets.")],
    reason: Annotated[str, typer.Option(help="What happened; it stands in the ledger.")],
    dataset: Annotated[str | None, typer.Option(help="This one alone; else all.")] = None,
    refuse: Annotated[bool, typer.Option("--refuse", help="Answer no, or take it back.")] = False,
) -> Answer:
    """Say that signed entries are lost for good. It takes two stewards.

    One asks, and then one more answers. Each ledger then says what is lost, and all that its
    dataset has left is charged. Stop all services first, and run it as the owner of the tables. It
    asks for the password or a token of the steward.
    """
    configured = bootstrap.settings()
    with bootstrap.database_up(configured):
        engine = bootstrap.engine(configured, owner=True, mending=True)
        from accountant.transactions import losses
        from web import signing_in

        found = losses.find(engine)
        for name in found.gone:
            note(f"WARNING: nothing is left of {name}. Whoever was in it can be registered again")
        wanted = [name for name in found.unsettled if dataset in (None, name)]
        if not wanted:
            raise invalid("dataset", "no ledger here waits for it", ", ".join(found.unsettled))
        actor = signing_in.actor(engine, person, typer.prompt("Password or token", hide_input=True))
        outcomes = {name: _settled(engine, found, name, actor, reason, refuse) for name in wanted}
    asked, settled, problems = (
        {name: value for name, (kind, value) in outcomes.items() if kind == wanted_kind}
        for wanted_kind in ("asked", "settled", "problem")
    )
    left = [name for name in found.unsettled if name not in settled]
    yield {"asked": asked, "settled": settled, "problems": problems, "left": left}
    for name, problem in problems.items():
        yield f"{name}: {problem}"
    for name in asked:
        yield f"{name}: asked. Another steward runs: exchequer ledger settle-loss"
    for name, entry in settled.items():
        yield f"{name}: entry {entry} says what is lost; all that was left is charged"
    if not left:
        yield (
            "all is settled. Before the signer starts, move what is in EXCHEQUER_PUBLIC_LOG to "
            "another place, and give the log another name: EXCHEQUER_PUBLIC_LOG_NAME"
        )
    if problems:
        stop(REFUSED)


def _settled(
    engine: Any, found: Any, dataset: str, actor: Any, reason: str, refuse: bool
) -> tuple[str, Any]:
    """Ask for a dataset's loss to be settled, or answer who asked: what happened, and its facts."""
    from accountant.core.errors import ExchequerError
    from accountant.transactions import answers, losses

    try:
        waiting = losses.waiting(engine, dataset)
        if waiting is None and refuse:
            return "problem", "nobody asked: there is nothing to refuse"
        if waiting is None:
            return "asked", str(losses.say(engine, found, dataset, actor, reason))
        answer = answers.answer(engine, waiting, actor, not refuse, reason)
        return ("problem", "refused, as you said") if refuse else ("settled", answer.entry)
    except ExchequerError as error:
        return "problem", str(error)


def new_log(
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> Answer:
    """Begin a new log outside the database, if its disk was lost.

    First it checks all ledgers against the public log, and all else that was signed. Stop all
    services first, and run it as the owner of the tables. `EXCHEQUER_LEDGER_LOG` names an empty
    folder or address.
    """
    configured = bootstrap.settings()
    with bootstrap.database_up(configured):
        engine = bootstrap.engine(configured, owner=True, mending=True)
        from accountant.transactions import new_log as lost_logs

        signed = bootstrap.signed_places(configured)
        planned = lost_logs.plan(engine, signed)
        for line in _new_log_told(planned):
            note(line)
        name = None
        if not planned.problems:
            if not yes:
                typer.confirm(
                    "Begin a new log, and give up what only the lost one held?", abort=True
                )
            identity = configured.secret("identity")
            proof = bootstrap.fingerprints().proof(identity)
            name = lost_logs.begin(engine, planned, signed.published, identity, proof)
    yield {
        "log": name,
        "entries": planned.entries,
        "lost": planned.lost,
        "held_at_least": planned.marked,
        "published": planned.published,
        "problems": planned.problems,
    }
    yield "no log was begun" if name is None else f"log {name} holds {planned.entries:,} entries"
    if name is None:
        stop(REFUSED)


def _new_log_told(plan: Any) -> Iterator[str]:
    """Yield what a new log would rest on, and what nobody can know any more."""
    yield (
        f"the database holds {plan.entries:,} entries of {len(plan.heads):,} datasets, verified; "
        f"the lost log held {plan.marked:,} at least ({plan.marked_at}), and {plan.published:,} "
        "were published"
    )
    if plan.connected:
        warning = f"WARNING: {plan.connected} others are connected to the database."
        yield f"{warning} Stop all services first"
    if plan.moved:
        yield (
            "WARNING: the database was restored or failed over since the log was last marked. What "
            "was spent after the backup stood in the lost log alone: it is given back, and nobody "
            "can tell"
        )
    yield (
        "WARNING: if the database was restored, or lost a failover's tail, then entries that only "
        "the lost log held are missing here, and can't be known any more: budget that they spent "
        "is given back, and their jobs may run again. Restore the newest backup there is before "
        "you go on"
    )
    for problem in plan.problems:
        yield f"can't begin: {problem}"


def publish_log() -> Answer:
    """Publish the log as a tree that its witnesses sign.

    It reads `EXCHEQUER_LEDGER_LOG` and writes `EXCHEQUER_PUBLIC_LOG`, a folder or s3://… to be
    served as it is. Where a signer runs, it does this by itself.
    """
    configured = bootstrap.settings()
    if configured.ledger_log is None or configured.public_log is None:
        lacking = "ledger_log" if configured.ledger_log is None else "public_log"
        raise invalid(lacking, "not set", f"a folder or s3://…: EXCHEQUER_{lacking.upper()}")
    from accountant.ledger_log.homes import log_at
    from accountant.ledger_log.publication import publish_configured

    head, key = publish_configured(configured, log_at(configured.ledger_log))
    publication = {
        "size": head.size,
        "root": head.root.hex(),
        "log_key": str(key),
        "witnesses": list(configured.public_log_witnesses.values()),
    }
    yield publication
    yield facts((label.replace("_", " "), value) for label, value in publication.items() if value)
