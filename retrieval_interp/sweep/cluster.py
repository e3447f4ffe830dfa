"""The engine for a Ray cluster. Its workers train in the folder of the sweep, which all machines share."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.run import Outcome, place, reason_of, train

PATIENCE = 20  # seconds to wait for a connection to the cluster
LOST = 5  # most restarts of a run whose worker or node was lost


def connect(address: str, gpus: float) -> Any:
    """Connect to a cluster, and return ``train`` as its task.

    Args:
        address: ``auto`` for the cluster that this machine belongs to, ``local`` for a new one on this machine, or
            host:port of the cluster's head.
        gpus: the share of a GPU that a run takes, or a whole number of GPUs.

    Raises:
        BadInput: ``gpus`` is invalid, Ray is not installed, no cluster answers, or no node has room for a run.
    """
    if not (0 <= gpus <= 1 or gpus.is_integer()):
        raise BadInput(f"a run cannot take {gpus:g} GPUs; expected a share or a whole number")
    try:
        import ray
    except ImportError as error:
        raise BadInput("Ray is not installed; install it with: pip install 'retrieval-interp[sweep]'") from error
    try:
        if address not in ("auto", "local"):  # ray.init would wait for minutes and write to standard error
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=PATIENCE).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises many types if a cluster does not answer
        raise BadInput(f"{address}: no Ray cluster answers there ({reason_of(error)})") from error
    for what, wanted in {"CPU": 1.0, "GPU": gpus}.items():
        most = max(node["Resources"].get(what, 0.0) for node in ray.nodes() if node["Alive"])
        if wanted > most:  # the runs would never start
            ray.shutdown()
            raise BadInput(f"{address}: a run takes {wanted:g} {what}; no node of the cluster has more than {most:g}")
    return ray.remote(num_cpus=1, num_gpus=gpus, max_retries=LOST)(train)


def on_cluster(runs: Sequence[Run], folder: Path, device: str, task: Any) -> Iterator[Outcome]:
    """Train runs on a cluster, as it has room; a run whose worker is lost continues elsewhere.

    Args:
        runs: the runs, which have been started.
        folder: the folder of the sweep.
        device: a name for ``choose_device``.
        task: the result of ``connect``.
    """
    import ray

    sent = {task.remote(place(folder.resolve(), run), device): run for run in runs}
    try:
        while sent:
            (ended,), _ = ray.wait([*sent])
            run = sent.pop(ended)
            try:
                reason = ray.get(ended)
            except ray.exceptions.RayError as error:  # the run was lost too often
                reason = reason_of(error)
            yield run, reason
    finally:
        for one in sent:
            ray.cancel(one, force=True)
