"""The rules of a dataset, which are entries of its own chain, and whether each later act kept to
them.

    REGISTER   {terms, version, data, layout}: what is declared of the data; a version of it that
               was found right, with its files, their sizes and hashes, where they lie and how they
                 are read. Data that never comes here has a version without data and layout
    POLICY     {policy}, with both people where it took two: who may ask, who must approve

A verifier checks by them, offline, what sums can't show: that jobs were priced under the terms
declared, that somebody else approved them, and that it took two people where the policy asks for
two. Every ledger begins with both. What a public export does not show of signatures, `unproved`
counts.

An approval of a request whose analyst had left says so (`departed`), and stands where the policy
admits it.

Not in the chain, and so not checked: the roles of people, and what is used of caps on people and
projects, which share a dataset out and protect nobody.
"""

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest, NotPermitted, VerificationFailed
from accountant.core.ledger import charges
from accountant.core.ledger.accounts import Demand
from accountant.core.ledger.admission import alone, delta_of, overdraft_delta
from accountant.core.ledger.allowances import check_removal, raises
from accountant.core.ledger.books import Books
from accountant.core.ledger.canonical_json import canonical
from accountant.core.ledger.commitments import is_hidden
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.policy import PRIVATE, Policy, weakened
from accountant.core.ledger.signatures import SignedActs
from accountant.core.mechanisms import charge
from accountant.core.names import is_alike
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Neighbours
from accountant.core.privacy.secrets import SecretTerms

Body = Mapping[str, Any]

#: Terms that each RESERVE repeats: its price follows from them.
PRICED = ("neighbours", "max_records_per_unit", "public_size", "labels", "groups")
#: All that a REGISTER states; `unit_column` names whom statements speak of.
TERMS = ("unit_column", *PRICED)
#: Terms that a REGISTER states where they are not "refuse": how units are told apart, records
#: without one.
UNIT_TERMS = {"unit_spelling": ("refuse", "merge", "keep"), "missing_units": ("refuse", "separate")}
#: Kinds that may stand before the rules are complete.
_RULES = (EntryKind.REGISTER, EntryKind.POLICY)
#: What a REGISTER states of a version: where its data lies and how it is read. Stewards and
#: auditors see it.
LAYOUT = ("uri", "text_template", "label_column", "group_column", "secret_column")
#: Epsilon by itself is computed numerically, so this much more than a limit counts as equal to it.
_SLACK = 1e-9


def register_body(dataset: Any, version: Any = None) -> dict[str, Any]:
    """Return the body of a REGISTER for a dataset, a row or a declaration.

    Args:
        version: the row of a version that was found right, with its files (workers.data.manifest).
    """
    terms = {name: getattr(dataset, name) for name in TERMS}
    listed = {name: list(terms[name]) for name in ("labels", "groups")}
    decided = {name: value for name in UNIT_TERMS if (value := getattr(dataset, name)) != "refuse"}
    body = {"terms": {**terms, **listed, **decided}, "version": None}
    if version is None:
        return body
    if version.uri is None:
        return {**body, "version": version.number}
    layout = {name: getattr(version, name) for name in LAYOUT} | {
        "secrets": secrets_digest(dataset)
    }
    return {**body, "version": version.number, "data": version.data, "layout": layout}


def secrets_digest(dataset: Any) -> str | None:
    """Return a salted SHA-256 of a dataset's patterns and words of secrets, or None if it declares
    none.

    Words of secrets are for stewards alone, so no entry states them. The salt stands in the
    dataset's row.
    """
    declared = {"patterns": list(dataset.secret_patterns), "terms": list(dataset.secret_terms)}
    if not any(declared.values()):
        return None
    return hashlib.sha256(canonical({"salt": dataset.secrets_salt, **declared})).hexdigest()


def dataset_columns(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a dataset's row that the terms of a REGISTER state."""
    return {name: terms[name] for name in TERMS} | {
        name: terms.get(name, "refuse") for name in UNIT_TERMS
    }


def policy_body(policy: Policy, people: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the body of a POLICY. `people`: the two who made it, with signatures, if any."""
    return {**(people or {}), "policy": policy.model_dump(mode="json")}


class Rules:
    """The rules in force, entry by entry. Holds the newest terms and policy, not the entries."""

    def __init__(self) -> None:
        self.terms: Mapping[str, Any] | None = None
        self.acts = SignedActs()
        #: The bodies of the REGISTERs that found a version right, by its number.
        self.versions: Mapping[int, Body] = {}
        self._hidden: frozenset[str] = frozenset()  # lists of people, in a public export
        self._unshown = 0  # entries whose signatures a public export does not show

    @property
    def policy(self) -> Policy | None:
        """The policy in force."""
        return self.acts.policy

    @property
    def unproved(self) -> tuple[str, ...]:
        """What could not be checked, in sentences."""
        if not self._unshown:
            return ()
        entries = "an entry" if self._unshown == 1 else f"{self._unshown:,} entries"
        return (
            f"not provable: whether people signed {entries}, as the policy asks: the export does "
            "not show it",
        )

    @property
    def data_is_here(self) -> bool:
        """Return whether a worker read every version of the data, or none is registered yet."""
        return all("layout" in register for register in self.versions.values())

    def copy(self) -> "Rules":
        """Return rules that can take in more entries while these stay as they are."""
        rules = copy.copy(self)
        rules.acts = copy.copy(self.acts)
        return rules

    def add(self, entry: Entry, books: Books, asked: Demand | None) -> None:
        """Check an entry: `books` before it, `asked` by a RESERVE. Raises VerificationFailed."""
        if not self.follow(entry):
            self._unshown += 1
        match entry.kind:
            case EntryKind.REGISTER:
                _check_secrets_stand(books, entry.body["terms"])
            case EntryKind.ALLOW:
                self._allow(entry, books)
            case EntryKind.RESERVE:
                assert asked is not None
                self._check_books(entry.body, books, asked)
                self.check_reserve(entry, asked)
            case EntryKind.REVERSAL:
                self._check_owners(entry)
            case EntryKind.LOSS:
                self._check_owners(entry)
                if not by_two(entry):
                    raise VerificationFailed("it names no two people")

    def follow(self, entry: Entry) -> bool:
        """Check an entry's signatures under the policy before it, and take it in if it is a rule.

        Returns False if the export does not show the signatures. Raises VerificationFailed.
        """
        if self.terms is None and entry.kind is not EntryKind.REGISTER:
            raise VerificationFailed("no REGISTER before it states the terms of the data")
        if self.policy is None and entry.kind not in _RULES:
            raise VerificationFailed("no POLICY before it states who may ask and who must approve")
        signed = self.acts.check(entry)
        match entry.kind:
            case EntryKind.REGISTER:
                self._register(entry.body)
            case EntryKind.POLICY:
                self._set(entry)
        return signed

    # --- entries that are rules
    # ---------------------------------------------------------------------

    def _register(self, body: Body) -> None:
        terms, version = body["terms"], body["version"]
        check_terms(terms)
        if self.versions and terms != self.terms:
            raise VerificationFailed("it registers other terms after data was found right")
        if version is not None:
            if type(version) is not int or version < 1 or version in self.versions:
                raise VerificationFailed(
                    f"its version is {version!r:.40}, which is no new number of one"
                )
            self.versions = {**self.versions, version: body}
        self.terms = terms

    def _set(self, entry: Entry) -> None:
        stated = entry.body["policy"]
        hidden = frozenset(name for name in PRIVATE if is_hidden(stated.get(name)))
        policy = Policy.model_validate({**stated, **dict.fromkeys(hidden, ())})
        # Who signs can't be judged where it is not shown.
        (policy if "signers" not in hidden else policy.model_copy(update={"signed": ()})).check()
        both, standing = by_two(entry), self.policy
        self._check_owners(entry)
        if standing is not None and standing.two_people and not both:
            unknown = hidden | self._hidden  # whom these list can't be compared
            weaker = weakened(standing, with_lists(policy, standing, unknown))
            if weaker:
                raise VerificationFailed(
                    f"it weakens {', '.join(weaker)}, and one person made it: the policy asks for "
                    "two people"
                )
        self._hidden = hidden

    def _check_owners(self, entry: Entry) -> None:
        """Raise VerificationFailed if somebody decided who is no steward of the dataset."""
        owners = () if self.policy is None else self.policy.stewards
        if not owners or is_hidden(entry.body.get("proposed_by")):
            return
        for name in (entry.actor, entry.body.get("proposed_by")):
            if name and name not in owners:
                raise VerificationFailed(
                    f"{name!r:.80} is not among the stewards that the policy names"
                )

    # --- acts
    # ---------------------------------------------------------------------------------------

    def _allow(self, entry: Entry, books: Books) -> None:
        both = by_two(entry)
        self._check_owners(entry)
        assert self.terms is not None
        if "secret" in entry.body:
            if entry.body["secret"]["neighbours"] != self.terms["neighbours"]:
                raise VerificationFailed(
                    "its secrets are stated under other neighbours than are registered"
                )
            check_removal(
                SecretTerms.from_json(entry.body["secret"]["terms"]), self.terms["unit_column"]
            )
        assert self.policy is not None
        if not both and raise_needs_two(self.policy, books) and raises(books, entry.body):
            raise VerificationFailed(
                "it raises the allowance, and one person made it: the policy asks for two people, "
                "or entries were lost"
            )

    def check_reserve(self, entry: Entry, asked: Demand) -> None:
        """Check all of a RESERVE that needs no balance: terms, lineage, asker, approver."""
        assert self.terms is not None
        assert self.policy is not None
        self._check_terms(self.terms, entry.body, asked)
        self._check_policy(self.policy, entry)
        self._check_approval(self.policy, entry, asked)

    def _check_books(self, body: Body, books: Books, asked: Demand) -> None:
        stated = body["terms"]
        delta = delta_of(None if books.account is None else books.account.delta)
        if "overdraft" in body:
            delta = overdraft_delta(asked.dp, delta)
        if stated["delta"] != delta:
            raise VerificationFailed(
                f"its delta is {stated['delta']!r:.40}, that of the allowance is {delta}"
            )
        self._check_secret(stated, books, asked)

    def _check_terms(self, terms: Body, body: Body, asked: Demand) -> None:
        stated = body["terms"]
        for name in PRICED:
            listed = stated.get(name, [])  # groups are left out where there are none
            if listed != terms[name]:
                raise VerificationFailed(
                    f"its {name} in terms is {listed!r:.60}, registered is {terms[name]!r:.60}"
                )
        if "label_sizes" in stated:
            raise VerificationFailed("it states sizes of labels, and none are registered")
        source = body["source"]
        if "version" in source:
            register = check_registered(source["version"], self.versions)
            if "layout" not in register and body["mechanism"] != charge.ID:
                raise VerificationFailed("it is a job that reads data, which never comes here")
        elif releases_anything(asked):
            raise VerificationFailed(
                "it is charged, and does not say which version of the data it reads"
            )

    def _check_secret(self, stated: Body, books: Books, asked: Demand) -> None:
        """Check a job's terms of secrets. It may have waited since r changed, and state the old."""
        if "secret" not in stated:
            if asked.secret is not None:
                raise VerificationFailed("it protects secrets, and its terms state none")
            return
        standing = None if books.secret is None else books.secret.terms
        secret = SecretTerms.from_json(stated["secret"])
        if standing is None or replace(secret, bound=standing.bound) != standing:
            raise VerificationFailed("its terms of secrets are not those that the dataset states")

    def _check_policy(self, policy: Policy, entry: Entry) -> None:
        body = entry.body
        if (body["model"] is None) is mechanisms.get(body["mechanism"]).uses_model:
            raise VerificationFailed(
                f"{body['mechanism']} names a model if and only if it uses one"
            )
        public = body["source"].get("public", {})
        models = [each["name"] for each in public.values() if each["kind"] != "corpus"]
        models += [] if body["model"] is None else [body["model"]["name"]]
        asks = [("mechanism", policy.mechanisms, mechanisms.get(body["mechanism"]).admitted_as)]
        if body["mechanism"] == charge.ID:
            asks = []
            self._check_charge(policy, entry)
        asks += [("model", policy.models, name) for name in models]
        for what, allowed, name in asks:
            if allowed and name not in allowed:
                raise VerificationFailed(f"the policy does not allow the {what} {name!r:.80}")
        if "overdraft" in body:
            self._check_overdraft(entry)
        else:
            _check_analyst(policy, entry.actor)

    def _check_overdraft(self, entry: Entry) -> None:
        """Check that two stewards declared it, and that it is no job of this service."""
        approval = entry.body["approval"]
        if entry.body["mechanism"] != charge.ID:
            raise VerificationFailed("only a charge is declared after it happened")
        if approval is None:
            raise VerificationFailed("it names no two people")
        self._check_owners(entry)
        if entry.actor and not is_hidden(approval) and is_alike(approval["by"], entry.actor):
            raise VerificationFailed(
                f"one person declared and confirmed it: {entry.actor!r:.80} and "
                f"{approval['by']!r:.80}"
            )

    def _check_charge(self, policy: Policy, entry: Entry) -> None:
        """Check that a policy admits a charge, and that its unit and signature are right."""
        assert self.terms is not None
        try:
            charges.check_admitted(policy, entry.body["parameters"])
            unit = self.terms["unit_column"]
            charges.check_stated(entry.dataset, unit, entry.body["parameters"])
        except (NotPermitted, InvalidRequest) as error:
            raise VerificationFailed(str(error)) from None

    def _check_approval(self, policy: Policy, entry: Entry, asked: Demand) -> None:
        approval = entry.body["approval"]
        if is_hidden(approval):
            return  # somebody approved it; who, a public export does not show
        if approval is None:
            self._check_needs_none(policy, asked, entry.body["terms"]["delta"])
            return
        if not (_is_said(approval["by"]) and _is_said(approval["reason"])):
            raise VerificationFailed("its approval names no person and reason")
        if "departed" in approval and not policy.departed_analysts:
            raise VerificationFailed("its analyst had left, and the policy admits no such request")
        _check_approver(policy, entry.actor, approval["by"])

    def _check_needs_none(self, policy: Policy, asked: Demand, delta: float) -> None:
        if not releases_anything(asked):
            return
        beyond = asked.ex_post > 0 or asked.secret is not None
        if beyond or not policy.approves(alone(asked.dp, delta) / (1 + _SLACK)):
            raise VerificationFailed(
                "nobody approved it, and the policy asks for a steward's approval"
            )


def raise_needs_two(policy: Policy, books: Books) -> bool:
    """Return whether a larger allowance takes two people.

    After a loss it does under every policy: what was spent is unknown.
    """
    return policy.two_people or books.history.losses > 0


def _check_secrets_stand(books: Books, terms: Body) -> None:
    """Check that terms that are registered anew are those under which secrets are stated."""
    if books.secret is None:
        return
    if books.secret.neighbours != terms["neighbours"]:
        raise VerificationFailed(
            "it registers other neighbours than those under which secrets are stated"
        )
    check_removal(books.secret.terms, terms["unit_column"])


def check_registered(version: object, versions: Mapping[int, Body]) -> Body:
    """Return the body of a version's REGISTER. Raises VerificationFailed without one."""
    if type(version) is not int or version not in versions:
        raise VerificationFailed(f"it reads version {version!r:.40}, which nobody registered")
    return versions[version]


def _check_analyst(policy: Policy, actor: str) -> None:
    """`actor` "": hidden."""
    if actor and policy.analysts and actor not in policy.analysts:
        raise VerificationFailed(f"the policy does not allow the analyst {actor!r:.80}")


def _check_approver(policy: Policy, actor: str, by: str) -> None:
    if policy.stewards and by not in policy.stewards:
        raise VerificationFailed(
            f"{by!r:.80} approved it, who is not among the stewards that the policy names"
        )
    if is_alike(by, actor) and not policy.solo:
        raise VerificationFailed(
            f"{by!r:.80} approved a job of their own, and the policy is not solo"
        )


def with_lists(policy: Policy, other: Policy, names: Iterable[str]) -> Policy:
    """Return the policy with the other's lists of people in these fields."""
    return policy.model_copy(update={name: getattr(other, name) for name in names})


def by_two(entry: Entry) -> bool:
    """Return whether an entry names two people. Raises VerificationFailed if they are one."""
    first, second = (entry.body.get(name) for name in ("proposed_by", "confirmed_by"))
    if first is None or second is None:
        return False
    if is_hidden(first) or is_hidden(second):
        return True
    if is_alike(first, second):
        raise VerificationFailed(
            f"one person proposed and confirmed it: {first!r:.80} and {second!r:.80}"
        )
    if entry.actor and second != entry.actor:
        raise VerificationFailed("it was not written by whoever confirmed it")
    sayings = [
        entry.body.get(name) for name in ("proposed_by", "reason", "confirmed_by", "confirmation")
    ]
    if not all(_is_said(saying) for saying in sayings):
        raise VerificationFailed("it names two people, and not both with their reasons")
    return True


def _is_said(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def releases_anything(asked: Demand) -> bool:
    """Return whether a job costs anything in any currency: it reads records then."""
    return asked.dp != FREE or asked.ex_post > 0 or asked.secret is not None


def check_terms(terms: object) -> None:
    """Raise VerificationFailed unless these are a dataset's terms, as REGISTER states them."""
    if not isinstance(terms, dict) or set(terms) - set(UNIT_TERMS) != set(TERMS):
        raise VerificationFailed(f"its terms are not {', '.join(TERMS)}")
    unit, size, bound = terms["unit_column"], terms["public_size"], terms["max_records_per_unit"]

    def is_names(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(name, str) for name in value)

    wrong = [
        name
        for name, fine in (
            ("unit_column", unit is None or isinstance(unit, str)),
            ("neighbours", terms["neighbours"] in tuple(Neighbours)),
            (
                "max_records_per_unit",
                type(bound) is int and bound >= 1 and (unit is not None or bound == 1),
            ),
            ("public_size", size is None or (type(size) is int and size >= 1)),
            ("labels", is_names(terms["labels"])),
            ("groups", is_names(terms["groups"])),
            *(
                (name, terms[name] in allowed[1:])
                for name, allowed in UNIT_TERMS.items()
                if name in terms
            ),
        )
        if not fine
    ]
    if wrong:
        raise VerificationFailed(f"its {wrong[0]} is {terms[wrong[0]]!r:.60}")
