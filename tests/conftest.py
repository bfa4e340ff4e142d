"""How many examples a property gets: `make fuzz` asks for more than `make test`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "project",
    deadline=None,
    database=None,
    derandomize=os.environ.get("CI") == "true",
    print_blob=True,
    # The payloads are meant to be large.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ],
)
settings.load_profile("project")


def examples(count: int) -> int:
    wanted = os.environ.get("FUZZ_EXAMPLES")
    return max(count, int(wanted)) if wanted else count
