"""Wrong arguments of `clipx report` are refused in one line."""

import re

import pytest

from cli.report.command import report
from clipx.errors import UserError

WRONG = {  # arguments -> part of the message
    "claims x out=x": "clipx report claims: out is not known",
    "claims runs/a=b": "no run folder at runs/a=b",  # a folder, because of the / before the =
    "compare": "`clipx report compare` needs RUN_OR_DIR",
    "compare missing": "no run folder at missing",
    "compare x seeds=3": "seeds is not known",
    "diff": "`clipx report diff` needs RUN RUN",
    "diff a": "`clipx report diff` needs RUN RUN",
    "diff a b c": "`clipx report diff` needs RUN RUN, 3 are given; ",
    "diff a b by=top1": "by is not known",
    "diff missing b": "no run at or below missing",
    "power missing": "no run folder at missing",
    "power . jobs=0": "jobs=0 must be a whole number",
    "published": "`clipx report published` needs SET|MODEL",
    "published imagnet": "imagnet is not known; did you mean 'imagenet'",
    "published imagenet by=x": "by is not known",
    "regimes": "`clipx report regimes` needs RUN_OR_DIR",
    "regimes x by=paper": "by is not known",
    "regimes missing": "no run folder at missing",
    "x reference=[RN50/cc13m]": "reference=RN50/cc13m is not in open_clip's tables; did you mean 'RN50/cc12",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments_are_refused_in_one_line(line: str) -> None:
    with pytest.raises(UserError, match=re.escape(WRONG[line])) as error:
        report(line.split())
    assert "\n" not in str(error.value)
