"""Workers: a mistake is said once, by the worker; a fault of ours keeps the launcher's report."""

import pytest

from cli.launch import run_workers
from clipx.errors import UserError


@pytest.mark.parametrize(
    ("module", "said", "report"),
    [("json.tool", "No such file", False), ("no_such_module", "No module named", True)],  # exit codes 2 and 1
)
def test_the_launchers_report_is_left_out_where_a_worker_says_what_is_wrong(
    module: str, said: str, report: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="eval: a worker failed"):
        run_workers(2, module, "/nowhere", "eval")
    printed = capfd.readouterr().err
    assert said in printed
    assert ("exitcode" in printed) == report and "Traceback" not in printed
