"""Access to the Hugging Face hub that fails at once when there is no network."""

import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def reachable() -> bool:
    """Return True if the hub answers within 5 seconds, through the proxies of the environment."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return True  # the hub has answered, with an error status
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def quiet_hub(fetching: bool) -> Iterator[None]:
    """Suppress logging in the block; hub clients use only the local cache if the hub cannot be reached.

    `fetching`: True if a download may be needed; only then check if the hub can be reached.
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
