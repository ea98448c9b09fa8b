"""The long forms of tests. A campaign (CONTRIBUTING.md) sets SUBLET_LONG=1; the suite runs a seeded sample."""

import os

LONG = os.environ.get("SUBLET_LONG") == "1"
