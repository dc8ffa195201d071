"""Raise the limit on the number of files and connections that this process can open."""

import resource


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the limit of the process to `wanted` file descriptors, as far as the system allows.

    A limit that is higher stays. Return the limit, or `wanted` if there is none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
