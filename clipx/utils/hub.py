"""The model hub, without a minute of retries where there is no network."""

import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def reachable() -> bool:
    """Whether the Hugging Face hub answers within a few seconds (proxies of the environment are used)."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return True  # an answer, if not a kind one
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def quiet_hub(fetching: bool) -> Iterator[None]:
    """Within it nothing is logged, and hub clients use the local cache only if the hub cannot be reached.

    fetching: whether something may have to be fetched; else the hub is not asked whether it is there.
    """
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = offline or (fetching and not reachable())
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.disable(logging.NOTSET)
