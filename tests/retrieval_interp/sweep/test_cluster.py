"""A sweep on a real Ray cluster: two nodes that listen on the loopback address alone; one is lost while it works."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import ray_constants, services
from ray.cluster_utils import Cluster

from retrieval_interp.models import presets
from retrieval_interp.sweep import cluster as cluster_module
from retrieval_interp.sweep.cluster import connect, on_cluster
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.run import results, sweep
from tests.refusals import assert_refused
from tests.sweeps import OTHER
from tests.waiting import RELEASED, STARTED, train_when_released

HERE = "127.0.0.1"
RUNS = [Run("waiting", seed) for seed in range(3)]
START = services.start_ray_process
AGENTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
INHERITED = {  # by what is started: no compiler, nothing sent home, as urgent as the other tests
    "TORCHDYNAMO_DISABLE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_agent_register_timeout_ms": "600000",
    ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0",
}


def a_node() -> dict[str, Any]:
    """Settings of a node, with ports for its agents. A raylet that is not told them ends itself if they do not write
    them down within 15 seconds, in which a busy machine does not even start Python."""
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.create_server((HERE, 0))) for name in AGENTS}
        ports = {name: own.getsockname()[1] for name, own in sockets.items()}
    return {"num_cpus": 1, "num_gpus": 1, "node_ip_address": HERE, **ports}


def with_the_port(command: list[str], process_type: str, *args: Any, **kwargs: Any) -> Any:
    """Ray's ``start_ray_process``; of one port Ray does not tell its raylet, and nobody here asks there."""
    port = ["--dashboard_agent_listen_port=1"] if process_type == ray_constants.PROCESS_TYPE_RAYLET else []
    return START([*command, *port], process_type, *args, **kwargs)


class SlowClock:
    """Ray's ``time``: it gives a node 30 seconds to start, and a busy machine may need ten times as many."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() / 10


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head with one processor, to which nodes are added."""
    for name, value in INHERITED.items():
        monkeypatch.setenv(name, value)
    # As on a laptop that Ray keeps to itself; else it takes 127.0.0.1 for a name of this machine's other addresses.
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
    monkeypatch.setattr("ray._private.node.time", SlowClock())
    monkeypatch.setattr(services, "start_ray_process", with_the_port)
    here = Cluster(initialize_head=True, head_node_args={**a_node(), "include_dashboard": False})
    try:
        yield here
    finally:
        ray.shutdown()
        here.shutdown()


def test_a_cluster_without_room_for_a_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("init", "shutdown"):
        monkeypatch.setattr(ray, name, lambda **_: None)
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}}] * 2)
    assert_refused("auto: a run takes 2 GPU; no node of the cluster has more than 1", connect, "auto", 2.0)


@pytest.mark.slow
def test_every_run_is_finished_although_a_node_is_lost(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(presets.PRESETS, "waiting", OTHER)
    monkeypatch.setattr(cluster_module, "train", train_when_released)
    second = cluster.add_node(**a_node())
    task = connect(cluster.address, 1.0)

    def lose_one() -> None:
        """As soon as both nodes work; then all may go on."""
        try:
            while len([*tmp_path.glob(f"{STARTED}-*")]) < 2:
                time.sleep(0.1)
            cluster.remove_node(second, allow_graceful=False)
        finally:
            (tmp_path / RELEASED).touch()

    losing = threading.Thread(target=lose_one)
    losing.start()
    shares: list[float] = []
    trained = partial(on_cluster, folder=tmp_path, device="cpu", task=task)
    assert sweep(RUNS, tmp_path, trained, shares.append) == {}
    losing.join()
    assert [*dict.fromkeys(zip(*(results(RUNS, tmp_path)[name] for name in ("preset", "seed")), strict=True))] == RUNS
    assert len([*tmp_path.glob(f"{STARTED}-*")]) > 2, "what was lost began again elsewhere"
    assert shares == [pytest.approx(share) for share in (0, 1 / 3, 2 / 3, 1)]
