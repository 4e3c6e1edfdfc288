"""The program `clipx`: runs cli.main, after a check that it is ours."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OTHERS = ("cli", "evaluation", "recipes")  # our packages whose names another program may use


def main() -> None:
    """Run a command. Exits with code 2 if Python finds a package of somebody else under the name of one of ours."""
    for name in OTHERS:
        spec = find_spec(name)
        places = spec.submodule_search_locations or [str(spec.origin)] if spec else ["no folder"]
        if Path(places[0]).resolve() != ROOT / name:
            problem = f"Python finds the package {name} in {places[0]}, not in {ROOT}"
            print(f"clipx: {problem}: rename yours, or take its folder out of PYTHONPATH", file=sys.stderr)
            sys.exit(2)
    import_module("cli.main").main()
