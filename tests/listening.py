"""On which addresses a server and all that it started are listening."""

from contextlib import suppress

import psutil


def listening(pid: int) -> set[str]:
    """The addresses, of every socket of a process and of those below it."""
    server, found = psutil.Process(pid), set()
    for process in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found |= {one.laddr.ip for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}
    return found
