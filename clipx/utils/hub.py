"""Access to the Hugging Face hub that fails at once when there is no network."""

import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPException

from clipx.errors import UserError, one_line


@cache
def reachable() -> bool:
    """Return True if the hub answers (5 seconds per address, the environment's proxies); the answer is kept."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=5).close()
    except urllib.error.HTTPError:
        return True  # the hub has answered, with an error status
    except (OSError, ValueError, HTTPException):  # HTTPException: of an answer that is not HTTP (a SOCKS proxy)
        return False
    return True


@contextmanager
def quiet_hub(fetching: bool) -> Iterator[None]:
    """In the block, log no errors of hub clients, and let them use only their cache if the hub cannot be reached.

    `fetching`: True if a download may be needed; only then check if the hub can be reached.
    """
    from huggingface_hub import constants

    offline, disabled = constants.HF_HUB_OFFLINE, logging.root.manager.disable
    constants.HF_HUB_OFFLINE = offline or (fetching and not reachable())
    logging.disable(max(disabled, logging.ERROR))
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.disable(disabled)


def download_error(what: str, command: str, alternative: str, error: Exception) -> UserError:
    """Return the error for what could not be downloaded, with a command to run and an alternative."""
    return UserError(
        f"{what} is not on this machine and could not be downloaded; run {command} where there is a network, or "
        f"{alternative} ({one_line(error).partition('. ')[0]})"
    )
