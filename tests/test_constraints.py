"""constraints.txt has an exact version of every dependency in pyproject.toml, and no addresses of packages."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PINS = [
    Requirement(line.split("#")[0])
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
]


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    """If this fails, run `make constraints`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    direct = [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]
    for needed in direct:
        if needed.name == project["name"]:
            continue
        pins = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(needed.name)]
        assert pins, needed
        for pin in pins:
            (version,) = pin.specifier
            assert version.operator == "==" and needed.specifier.contains(version.version), (needed, pin)


def test_constraints_name_no_address_of_a_package() -> None:
    assert not re.search(r"://|--index|--find-links| @ ", (ROOT / "constraints.txt").read_text())
