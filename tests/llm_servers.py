"""Servers that speak the OpenAI protocol on the loopback address: one with a small random model, one with an oracle."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from retrieval_interp.tasks.equations import EquationsTask
from tests.listening import listening
from tests.solver import solve

CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def write_random_model(folder: Path) -> None:
    """A Llama of one layer that knows the words of the equations, and nothing else; it samples as it is served."""
    tokenizer = EquationsTask(n_steps=3).tokenizer
    tokenizer.chat_template, tokenizer.eos_token = CHAT, "\n"
    end = tokenizer.convert_tokens_to_ids("\n")
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"eos_token_id": end, "pad_token_id": end, "bos_token_id": None}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **shape, **ends))
    model.generation_config.do_sample = True
    # A number, or now and then one of four other words, so that the test does not take long.
    said = {*map(str, range(4)), "What", "is", "the", "value"}
    model.generation_config.suppress_tokens = [i for i in range(len(tokenizer)) if tokenizer.decode(i) not in said]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def transformers_server(folder: Path) -> Iterator[str]:
    """``transformers serve`` with the model of a folder; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while not _answers(address):
            assert server.poll() is None, "the server ended"
            time.sleep(0.2)
        yield f"{address}/v1"
        assert listening(server.pid) == {"127.0.0.1"}
    finally:
        server.terminate()
        server.wait()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


class PatientServer(ThreadingHTTPServer):
    """A server at which many may wait: by default the sixth is turned away."""

    request_queue_size = 128


class Oracle(BaseHTTPRequestHandler):
    """Solves every question. Of all requests every fourth is refused, as by a rate limit."""

    asked, counting = 0, threading.Lock()

    def do_POST(self) -> None:
        with Oracle.counting:
            Oracle.asked += 1
            refused = Oracle.asked % 4 == 0
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if refused:
            self.answer(429, {"error": {"message": "slow down", "type": "rate_limit", "code": "rate_limit_exceeded"}})
            return
        said = {"role": "assistant", "content": solve(body["messages"][-1]["content"])}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        kind = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        self.answer(200, {**kind, "choices": [choice], "usage": usage})

    def answer(self, status: int, content: dict[str, object]) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""


@contextmanager
def oracle_server() -> Iterator[str]:
    """Yields the oracle's address."""
    Oracle.asked = 0
    server = PatientServer(("127.0.0.1", 0), Oracle)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
