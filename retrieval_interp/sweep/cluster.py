"""A sweep on a Ray cluster: jobs go out to workers, what they made comes back, and only this process writes."""

import logging
import math
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from circuits.errors import BadInput
from retrieval_interp.sweep.job import Failure, Job, Outcome, Work, attempt, reason_of

PATIENCE = 20  # seconds until a machine that does not answer is not there
HEALTH = 180  # seconds until a cluster is not well: who asks first imports Ray, which takes long on a busy machine
LOST = 5  # times that a job is begun again because its worker or its node was lost
WAITING = (
    100  # jobs that are sent at once, and wait until the cluster has room: each holds the lock of its run, an open file
)
LOOK = 1.0  # seconds between two looks at how far the jobs are


def connect(address: str, gpus: float) -> Any:
    """Ray, connected to a cluster.

    Args:
        address: ``auto`` for the cluster that this machine belongs to, or host:port of its head.
        gpus: the share of a GPU that a job takes, or how many.

    Raises:
        BadInput: Ray is not installed, no cluster answers there, or no node of it has room for a job.
    """
    if not 0 <= gpus < math.inf or (gpus > 1 and gpus != int(gpus)):
        raise BadInput(f"a job cannot take {gpus:g} GPUs; expected a share, or a whole number")
    try:
        import ray
    except ImportError as error:
        raise BadInput("Ray is not installed; install it with: pip install 'retrieval-interp[sweep]'") from error
    if address != "auto":
        _check_alive(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # whatever Ray makes of a cluster that does not answer
        raise BadInput(f"{address}: no Ray cluster answers there ({reason_of(error)})") from error
    for what, wanted in {"CPU": 1.0, "GPU": gpus}.items():
        most = max(node["Resources"].get(what, 0.0) for node in ray.nodes() if node["Alive"])
        if wanted > most:  # the jobs would wait for ever
            ray.shutdown()
            raise BadInput(
                f"{address}: a job takes {wanted:g} {what}, and no node of this cluster has more than {most:g}"
            )
    return ray


def _check_alive(address: str) -> None:
    """Ask a cluster how it is; left to itself Ray would wait for minutes, and say so on standard error.

    Raises:
        BadInput: nobody answers.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5:
        raise BadInput(f"{address}: no Ray cluster answers there; expected auto, or host:port")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except (OSError, OverflowError, UnicodeError) as error:  # no name of a machine, no number of a port
        raise BadInput(f"{address}: no Ray cluster answers there ({reason_of(error)})") from error
    ask = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        healthy = subprocess.run(ask, capture_output=True, timeout=HEALTH).returncode == 0
    except subprocess.TimeoutExpired:
        healthy = False
    if not healthy:
        raise BadInput(f"{address}: no Ray cluster answers there")


def on_cluster(
    jobs: Iterable[Job], told: Callable[[Job, float], None], work: Work[Outcome], ray: Any, gpus: float
) -> Iterator[tuple[Job, Outcome | Failure]]:
    """Every job with what came of it, in the order in which they end; lost ones are begun again elsewhere.

    Args:
        jobs: many are sent at once; the cluster begins them when it has room.
        told: hears of every job how far it is.
        work: what to do with a job; it travels to the workers.
        ray: of ``connect``.
        gpus: the share of a GPU that a job takes; 0 for none.
    """
    left = iter(jobs)
    wanted = [*islice(left, WAITING)]
    if not wanted:
        return
    here = ray.get_runtime_context().get_node_id()  # the shares are lost with this process, and not before
    beside = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
    shares = ray.remote(Shares).options(num_cpus=0, scheduling_strategy=beside).remote()
    remote = ray.remote(_on_worker).options(max_retries=LOST, num_cpus=1, num_gpus=gpus)
    sent = {remote.remote(job, work, shares): job for job in wanted}
    try:
        while sent:
            ready, _ = ray.wait([*sent], num_returns=1, timeout=LOOK)
            for one in ready:
                job = sent.pop(one)
                try:
                    done = ray.get(one)
                except Exception as error:  # it was lost too often
                    done = Failure(job.run, reason_of(error))
                yield job, done
            sent |= {remote.remote(job, work, shares): job for job in islice(left, WAITING - len(sent))}
            begun = ray.get(shares.all.remote())
            for job in sent.values():
                told(job, begun.get(job, 0.0))
    finally:
        for one in sent:
            ray.cancel(one, force=True)
        ray.kill(shares)


class Shares:
    """How far the jobs are; an actor that the workers tell."""

    def __init__(self) -> None:
        self._shares: dict[Job, float] = {}

    def tell(self, job: Job, share: float) -> None:
        """A worker's word."""
        self._shares[job] = share

    def all(self) -> dict[Job, float]:
        """Of every job that has begun, from 0 to 1."""
        return self._shares


def _on_worker(job: Job, work: Work[Outcome], shares: Any) -> Outcome | Failure:
    return attempt(job, lambda share: shares.tell.remote(job, share), work)
