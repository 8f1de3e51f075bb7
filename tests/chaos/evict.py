"""A node that computes wrongly is named by an audit and runs no more workers; the others go on from
what was audited, with the losses of an undisturbed run. The nodes are network namespaces."""
import pathlib
import sys

import hosts

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "multirank"))
from audit_runs import nodes_evicted  # noqa: E402
from lockstep_run import Test  # noqa: E402

hosts.enter()
with Test("evict") as test:
    nodes_evicted(test, hosts.hosts(3))
