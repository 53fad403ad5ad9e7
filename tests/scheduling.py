"""The order of tests, and their processes; tests/conftest.py hands this to pytest-xdist.

A module stays in one process, so that what its fixtures build is built once, and so does a chain of
modules on a warm service. The longest go first: no process is left with one of them when the others
are done.
"""

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: Those that ask for `warm_service` or `warm_engine`: a chain in one process with one service, as
#: its workers load torch once. Another module that does starts a service of its own. The first
#: finds no other dataset or model in the service.
WARM = (
    "test_analyst_journey",
    "test_artifact_jobs",
    "test_secret_jobs",
    "test_public_jobs",
    "test_jobs",
    "test_coin_jobs",
    "test_malformed_messages",
    "test_private_prediction_examples",
    "test_summary_jobs",
    "test_dp_kps_examples",
    "test_evolution_examples",
    "test_epsvec_examples",
    "test_endpoint_jobs",
    "test_evaluation_job",
    "test_invisible_ink_example",
    "test_corpora",
)
CHAIN = "the warm service"
#: The longest first, by `make test ARGS=--durations=0`; whatever is not named here runs after
#: these.
LONGEST = (
    *WARM,
    "test_first_use",
    "test_accessibility",
    "test_local",
    "test_roles",
    "test_faults",
    "test_steward_journey",
    "test_twins",
    "test_epsvec",
    "test_ledger_log",
    "test_orders",
    "test_limits",
    "test_paging",
    "test_secpe_promise",
    "test_recovery",
    "test_losses",
    "test_launcher",
    "test_pgbouncer",
    "test_admission_under_load",
    "test_resuming",
    "test_audits",
    "test_ledger",
    "test_uploads",
    "test_fuzz",
    "test_conformance",
    "test_mechanism_forms",
    "test_auditor_journey",
    "test_engine",
    "test_headers",
    "test_utility",
    "test_slots",
    "test_extending",
    "test_writers",
    "test_installing",
)
_RANK = {name: rank for rank, name in enumerate(LONGEST)}


def longest_first(items: list[pytest.Item]) -> None:
    """Put the modules in order; the tests of each stay as they stand."""
    items.sort(key=lambda item: _RANK.get(item.path.stem, len(_RANK)))


def is_last_of_chain(path: Path, items: list[pytest.Item]) -> bool:
    """Return True if no later module of the same process shares its warm service."""
    stems = list(dict.fromkeys(item.path.stem for item in items))
    return path.stem not in WARM or path.stem == [stem for stem in stems if stem in WARM][-1]


class OneProcessAModule(LoadScopeScheduling):
    """Hands out whole modules, in the order of collection."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False  # by the number of tests, which says little
        super().__init__(config, log)

    def remove_node(self, node: WorkerController) -> str | None:
        """Hand what a dead process had left to others, without the test that it died of.

        pytest-xdist would run that one again, until the last process is dead, and would hand out
        the modules that were done: a process waits for ever for a test among them.
        """
        work = self.assigned_work[node]
        left = [(unit, test) for unit in work.values() for test, done in unit.items() if not done]
        died_of = left[0][1] if left else None
        if left:
            left[0][0][left[0][1]] = True
        self.assigned_work[node] = {
            scope: unit for scope, unit in work.items() if not all(unit.values())
        }
        super().remove_node(node)
        return died_of

    def _reschedule(self, node: WorkerController) -> None:
        """Hand out until there are two tests: a process begins one when it knows the next."""
        if node not in self.registered_collections:  # it starts in place of a dead one
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Leave to the others what a process that died a moment ago can't be told."""
        scope = next(iter(self.workqueue))
        try:
            super()._assign_work_unit(node)
        except OSError:
            self.workqueue[scope] = self.assigned_work[node].pop(scope)
            node.shutdown()

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return CHAIN if Path(path).stem in WARM else path


def is_left_out(path: Path, wanted: str) -> bool:
    """Return True if `-m` leaves all tests of a module out, so that it need not be imported."""
    left_out = {"not slow": ("slow", "release"), "not release": ("release",)}.get(wanted, ())
    if not left_out:
        return False
    text = path.read_text("utf-8")
    heads = ("\npytestmark = pytest.mark.{}\n", "\npytestmark = [\n    pytest.mark.{},\n")
    in_a_browser = "slow" in left_out and "\npytestmark = MARKS\n" in text
    return in_a_browser or any(head.format(mark) in text for mark in left_out for head in heads)
