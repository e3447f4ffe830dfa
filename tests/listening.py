"""On which addresses a server and all that it started are listening."""

import psutil


def listening(pid: int) -> set[str]:
    """The addresses, of every socket of a process and of those below it."""
    server = psutil.Process(pid)
    sockets = (one for process in (server, *server.children(recursive=True)) for one in process.net_connections("inet"))
    return {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}
