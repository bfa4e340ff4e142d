"""What all tests share: the same examples and the same random bytes in every run.

`make test` is deterministic. Random search belongs to `make fuzz`, which sets FUZZ_EXAMPLES. `make quick` sets
QUICK, and tries a fifth of the examples.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

_FUZZ_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
_IS_QUICK = "QUICK" in os.environ


def examples(count: int) -> int:
    """The number of examples for a property: `count`, fewer in `make quick`, or more in `make fuzz`."""
    return max(count // 5 if _IS_QUICK else count, _FUZZ_EXAMPLES)


# Hypothesis also draws constants from whatever modules happen to be loaded, which differs between the processes
# that share out the tests. There is no setting for that.
assert callable(providers._get_local_constants)
if not _FUZZ_EXAMPLES:
    providers._get_local_constants = lambda: providers._local_constants

settings.register_profile(
    "test",
    max_examples=examples(60),
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    # Payloads are large on purpose, and a slow machine is not a failure.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ],
)
settings.register_profile("fuzz", settings.get_profile("test"), derandomize=False)
settings.load_profile("fuzz" if _FUZZ_EXAMPLES else "test")


@pytest.fixture(autouse=True)
def _same_random_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handles and ids are random, and how many tokens a handle takes depends on its letters."""
    if not _FUZZ_EXAMPLES:
        monkeypatch.setattr(os, "urandom", random.Random(request.node.nodeid).randbytes)
        random.seed(request.node.nodeid)
