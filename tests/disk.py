"""A disk that is nearly full."""

import resource
from contextlib import contextmanager


@contextmanager
def files_of_at_most(size: int):
    """As on a disk that is nearly full."""
    _, most = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
