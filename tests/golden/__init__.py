"""Reference values of objectives, geometry and recall in float64, computed from the papers' formulas without clipx."""

import json
from pathlib import Path
from typing import Any

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "objectives.json").read_text())
