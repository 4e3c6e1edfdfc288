"""`python -m cli.workers ...`: torch.distributed.run, which says nothing more where a worker has said what is wrong."""

import logging
import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run


def main() -> int:
    """The exit code: 2 where a worker ended with 2, the user's mistake; else, after the launcher's report, 1."""
    logging.disable(logging.ERROR)  # in this process only; what it would log is in the report
    try:
        run(parse_args(sys.argv[1:]))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        if error.get_first_failure()[1].exitcode == 2:
            return 2
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
