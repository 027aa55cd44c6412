"""How hard the property tests search: CHARY_TESTS=full takes the long profile, otherwise the quick one."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("full", deadline=None, max_examples=1000)
settings.load_profile("full" if os.environ.get("CHARY_TESTS") == "full" else "ci")
