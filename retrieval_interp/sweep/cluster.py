"""The engine for a Ray cluster: workers do the jobs and return the outcomes; only this process writes to the store."""

import logging
import math
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from circuits.errors import BadInput
from retrieval_interp.sweep.job import Failure, Job, Work, attempt, reason_of
from retrieval_interp.sweep.store import Trained

PATIENCE = 20  # seconds to wait for a connection to the cluster
HEALTH = 180  # seconds to wait for the health check, which first imports Ray; this is slow on a busy machine
LOST = 5  # most restarts of a job whose worker or node was lost
WAITING = 100  # most jobs submitted at once; each holds the lock of its run, which is an open file
LOOK = 1.0  # seconds between two progress updates


def connect(address: str, gpus: float) -> Any:
    """Connect to a cluster, and return the module ``ray``.

    Args:
        address: ``auto`` for the cluster that this machine belongs to, or host:port of the cluster's head.
        gpus: the share of a GPU that a job takes, or a whole number of GPUs.

    Raises:
        BadInput: ``gpus`` is invalid, Ray is not installed, no cluster answers, or no node has room for a job.
    """
    if not 0 <= gpus < math.inf or (gpus > 1 and gpus != int(gpus)):
        raise BadInput(f"a job cannot take {gpus:g} GPUs; expected a share or a whole number")
    try:
        import ray
    except ImportError as error:
        raise BadInput("Ray is not installed; install it with: pip install 'retrieval-interp[sweep]'") from error
    if address != "auto":
        _check_alive(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises many types if a cluster does not answer
        raise BadInput(f"{address}: no Ray cluster answers there ({reason_of(error)})") from error
    for what, wanted in {"CPU": 1.0, "GPU": gpus}.items():
        most = max(node["Resources"].get(what, 0.0) for node in ray.nodes() if node["Alive"])
        if wanted > most:  # the jobs would never start
            ray.shutdown()
            raise BadInput(f"{address}: a job takes {wanted:g} {what}; no node of the cluster has more than {most:g}")
    return ray


def _check_alive(address: str) -> None:
    """Check that a cluster answers; ``ray.init`` would wait for minutes and write to standard error.

    Raises:
        BadInput: no cluster answers.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5:
        raise BadInput(f"{address}: no Ray cluster answers there; expected auto or host:port")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError, UnicodeError) as error:  # also an invalid host or port
        raise BadInput(f"{address}: no Ray cluster answers there ({reason_of(error)})") from error
    check = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        healthy = subprocess.run(check, capture_output=True, timeout=HEALTH).returncode == 0
    except subprocess.TimeoutExpired:
        healthy = False
    if not healthy:
        raise BadInput(f"{address}: no Ray cluster answers there")


def on_cluster(
    jobs: Iterable[Job], progress: Callable[[Job, float], None], work: Work, ray: Any, gpus: float
) -> Iterator[tuple[Job, Trained | Failure]]:
    """Do the jobs on a cluster, and yield each with its outcome as it ends; lost jobs are started again elsewhere.

    Args:
        jobs: the jobs; up to ``WAITING`` are submitted at once, and the cluster starts them when it has room.
        progress: is called with each running job and its finished share, 0 to 1.
        work: the function that does a job; it is sent to the workers.
        ray: the result of ``connect``.
        gpus: the share of a GPU that a job takes; 0 for none.
    """
    remaining = iter(jobs)
    first = [*islice(remaining, WAITING)]
    if not first:
        return
    here = ray.get_runtime_context().get_node_id()  # on this node, the actor lives as long as this process
    beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
    shares = ray.remote(Shares).options(num_cpus=0, scheduling_strategy=beside).remote()
    remote = ray.remote(_on_worker).options(max_retries=LOST, num_cpus=1, num_gpus=gpus)
    sent = {remote.remote(job, work, shares): job for job in first}
    try:
        while sent:
            ready, _ = ray.wait([*sent], num_returns=1, timeout=LOOK)
            for one in ready:
                job = sent.pop(one)
                try:
                    done = ray.get(one)
                except Exception as error:  # the job was lost more than LOST times
                    done = Failure(job.run, reason_of(error))
                yield job, done
            sent |= {remote.remote(job, work, shares): job for job in islice(remaining, WAITING - len(sent))}
            started = ray.get(shares.all.remote())
            for job in sent.values():
                progress(job, started.get(job, 0.0))
    finally:
        for one in sent:
            ray.cancel(one, force=True)
        ray.kill(shares)


class Shares:
    """An actor to which the workers report the finished shares of their jobs."""

    def __init__(self) -> None:
        self._shares: dict[Job, float] = {}

    def tell(self, job: Job, share: float) -> None:
        """Set the share of a job."""
        self._shares[job] = share

    def all(self) -> dict[Job, float]:
        """Return the share of every job that has started, 0 to 1."""
        return self._shares


def _on_worker(job: Job, work: Work, shares: Any) -> Trained | Failure:
    return attempt(job, lambda share: shares.tell.remote(job, share), work)
