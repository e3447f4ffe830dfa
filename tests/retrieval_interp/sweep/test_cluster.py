"""A sweep on a real Ray cluster: two nodes that listen on the loopback address alone; one is lost while it works."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray._private import ray_constants, services
from ray.cluster_utils import Cluster

from circuits import BadInput
from retrieval_interp import RetrievalTask
from retrieval_interp.models import presets
from retrieval_interp.models.checkpoints import load_tensors
from retrieval_interp.models.model_dir import WEIGHTS
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.sweep import cluster as cluster_module
from retrieval_interp.sweep.cluster import connect, on_cluster
from retrieval_interp.sweep.job import Job
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.run import JobProgress, sweep
from retrieval_interp.sweep.store import FAILURES, Store
from tests.listening import listening
from tests.waiting import RELEASED, trained_or_waited_for

HERE = "127.0.0.1"
TINY = Preset(
    RetrievalTask(1, n_chains=2),
    Architecture(1, 1, d_model=8, d_head=8),
    Recipe(steps=20, batch=8, training_examples=64),
)
pytestmark = pytest.mark.slow
# Two that are lost in the middle of what only waits, one that waits its turn, and one that is trained.
RUNS = (*(Run("waiting", seed) for seed in range(3)), Run("tiny", 0))
START = services.start_ray_process
HEAD = {"num_cpus": 0, "node_ip_address": HERE, "include_dashboard": False}


AGENTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")


def ports() -> dict[str, int]:
    """Ports for the agents of a node. A raylet that is not told them ends itself if they do not write them down within
    15 seconds, in which a busy machine does not even start Python."""
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.create_server((HERE, 0))) for name in AGENTS}
        return {name: own.getsockname()[1] for name, own in sockets.items()}


def told_the_port(command: list[str], process_type: str, *args: Any, **kwargs: Any) -> Any:
    """Ray's ``start_ray_process``; of one port Ray does not tell its raylet, and nobody here asks there."""
    told = ["--dashboard_agent_listen_port=1"] if process_type == ray_constants.PROCESS_TYPE_RAYLET else []
    return START([*command, *told], process_type, *args, **kwargs)


class SlowClock:
    """Ray's ``time``: it gives a node 30 seconds to start, and a busy machine may need ten times as many."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() / 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without processors of its own, to which nodes are added."""
    inherited = {  # by what is started: no compiler, nothing sent home, as urgent as the other tests
        "TORCHDYNAMO_DISABLE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_health_check_period_ms": "1000",
        "RAY_agent_register_timeout_ms": "600000",
        ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0",
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, value in inherited.items():
            patched.setenv(name, value)
        # As on a laptop that Ray keeps to itself; else it takes 127.0.0.1 for a name of this machine's other addresses.
        patched.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
        patched.setattr("ray._private.node.time", SlowClock())
        patched.setattr(services, "start_ray_process", told_the_port)
        here = Cluster(initialize_head=True, head_node_args=HEAD | ports())
        try:
            yield here
        finally:
            ray.shutdown()
            here.shutdown()


def patiently_until(seen: Callable[[], bool]) -> None:
    """However busy the machine is, but not for ever."""
    for _ in range(6000):
        if seen():
            return
        time.sleep(0.1)
    raise TimeoutError("it was never seen")


def test_a_cluster_without_room_for_a_job_is_refused(cluster: Cluster) -> None:
    with pytest.raises(BadInput, match="a job takes 1 CPU; no node of the cluster has more than 0"):
        connect(cluster.address, 0.0)


def test_every_run_is_there_once_although_a_worker_is_killed_and_a_node_is_lost(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("waiting", "tiny"):
        monkeypatch.setitem(presets.PRESETS, name, TINY)
    monkeypatch.setattr(cluster_module, "_check_alive", lambda address: None)  # as it is seen to be above
    _, second = (cluster.add_node(num_cpus=1, num_gpus=1, node_ip_address=HERE, **ports()) for _ in range(2))
    with pytest.raises(BadInput, match="a job takes 2 GPU; no node of the cluster has more than 1"):
        connect(cluster.address, 2.0)
    connect(cluster.address, 0.5)
    monkeypatch.setattr(cluster_module, "WAITING", 3)
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    work = partial(trained_or_waited_for, meeting=meeting)
    taken: list[str] = []
    done: list[str] = []
    lost: list[str] = []
    heard: set[str] = set()
    shares: list[float] = []

    def counted(jobs: Iterable[Job]) -> Iterator[Job]:
        for job in jobs:
            taken.append(str(job.run))
            yield job

    def noted(jobs: Iterable[Job], progress: JobProgress) -> Iterator[Any]:
        for job, outcome in on_cluster(counted(jobs), progress, work, ray, gpus=0.5):
            assert len(taken) - len(done) <= 3
            done.append(str(job.run))
            yield job, outcome

    def destroy() -> None:
        """As soon as two work, kill the worker of one node, and the other node with its worker; then all may end."""
        try:
            patiently_until(lambda: len([*meeting.iterdir()]) == 2 and any(shares))  # nothing ended, the bar moves
            heard.update(listening(os.getpid()))
            (raylet,) = second.all_processes["raylet"]
            on_second = {child.pid for child in psutil.Process(raylet.process.pid).children(recursive=True)}
            (elsewhere,) = {int(worker.name) for worker in meeting.iterdir()} - on_second
            psutil.Process(elsewhere).kill()
            lost.append("worker")
            cluster.remove_node(second, allow_graceful=False)
            lost.append("node")
        finally:
            (meeting / RELEASED).touch()

    destroyer = threading.Thread(target=destroy)
    destroyer.start()
    store = Store(tmp_path / "store")
    assert sweep(RUNS, store, noted, shares.append) == []
    destroyer.join()
    assert lost == ["worker", "node"]
    assert heard == {HERE, f"::ffff:{HERE}"}, "nobody else is listened to"
    assert sorted(done) == sorted(map(str, RUNS)), "every run came back once"
    assert {store.result(run).run for run in RUNS} == {*RUNS}
    assert not (store.folder / FAILURES).exists()
    assert load_tensors(store.path(Run("tiny", 0)) / WEIGHTS)[0], "a trained model's weights came back"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:9", "nonsense:here", ":6379", "127.0.0.1", "127.0.0.1:99999", f"a:{'9' * 5000}", f"{'a' * 300}:80"],
)
def test_a_cluster_that_is_not_there_is_one_clear_line(address: str) -> None:
    with pytest.raises(BadInput, match=rf"^{address}: no Ray cluster answers there[^\n]*$"):
        connect(address, 0.0)


def test_who_listens_and_says_nothing_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "HEALTH", 5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(BadInput, match=rf"^{address}: no Ray cluster answers there$"):
            connect(address, 0.0)


def test_more_than_one_gpu_is_a_whole_number_of_them() -> None:
    for gpus in (1.5, float("inf"), float("nan")):
        with pytest.raises(BadInput, match=f"a job cannot take {gpus:g} GPUs; expected a share or a whole number"):
            connect("auto", gpus)
