"""What was measured: the losses of circuits, example by example. Kept in a folder, it outlives its process."""

import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.evaluation import evaluate
from circuits.files import PARTIAL, write_atomically
from circuits.problem import Problem
from circuits.sample import Sample

FEW = 2  # examples whose losses tell one problem from another
KEY, FILES = 16 * "[0-9a-f]", 6 * "[0-9]" + ".safetensors"  # the names of what is kept, as patterns
KEPT_EVERY = 5.0  # seconds: what a killed process loses


class Measured:
    """Losses that need not be measured again, by what they were measured on.

    A validation that is given a folder goes on where an earlier one with the same model, problem, seed and number of
    examples was stopped, whatever stopped it. Several may share what they measured in memory too.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """What was measured is kept in ``folder``; nothing else in it is touched.

        Raises:
            BadInput: something else has its name, or a link stands where it keeps its own.
        """
        own = [folder, *folder.glob(KEY)] if folder is not None else []
        for path in own:
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise BadInput(f"{path}: is no folder; a validation keeps there what it measured")
        self.folder = folder
        self._ledgers: dict[str, Ledger] = {}

    def of(self, model: HookedTransformer, problem: Problem, sample: Sample) -> "Ledger":
        """The losses of one model's circuits on one sample."""
        few = sample.first.take(slice(0, FEW))
        own = evaluate(model, problem, few, [Circuit()])[0].cpu()
        key = _key(model, sample, own.tolist())
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(self.folder / key, own) if self.folder else Ledger()
        return self._ledgers[key]

    def keep(self) -> None:
        """Write what was measured and is not in the folder yet.

        Raises:
            BadInput: it cannot be written.
        """
        for ledger in self._ledgers.values():
            ledger.keep()

    @property
    def begun(self) -> bool:
        """Whether the folder holds something that was measured."""
        return self.folder is not None and any(self.folder.glob(f"{KEY}/{FILES}"))

    def forget(self) -> None:
        """Remove what was kept, and the folder if it holds nothing else: what it was for is done."""
        if self.folder is None:
            return
        for kept in (*self.folder.glob(f"{KEY}/{FILES}"), *self.folder.glob(f"{KEY}/.{FILES}.*{PARTIAL}")):
            kept.unlink()
        for folder in (*self.folder.glob(KEY), self.folder):
            with suppress(OSError):  # something else is in it
                folder.rmdir()


class Ledger:
    """Losses of circuits on one sample, from its first example on.

    On disk a few circuits and examples more in every file, as tensors of the name ``digest:first example``.
    """

    def __init__(self, folder: Path | None = None, like: Float[Tensor, "example part"] | None = None) -> None:
        """What stands in ``folder`` is taken up where it is ``like`` other losses, in precision and parts."""
        self._folder = folder
        self._losses: dict[str, list[Tensor]] = {}
        self._unkept: dict[str, Tensor] = {}
        self._kept_at = time.monotonic()
        self._n_files = 0
        if folder is not None and like is not None:
            for path in sorted(folder.glob(FILES)):
                self._take_up(path, like)
                self._n_files = int(path.stem) + 1

    def n(self, circuit: Circuit) -> int:
        """On how many examples a circuit was measured."""
        return sum(map(len, self._losses.get(circuit.digest, ())))

    def losses(self, circuit: Circuit) -> Float[Tensor, "example part"]:
        """Of every example that it was measured on."""
        own = self._losses[circuit.digest]
        if len(own) > 1:
            own[:] = [torch.cat(own)]
        return own[0]

    def add(self, circuits: Sequence[Circuit], first: int, losses: Float[Tensor, "circuit example part"]) -> None:
        """Add the losses of circuits on the examples from ``first`` on; those that are known stay as they are."""
        for circuit, own in zip(circuits, losses.cpu(), strict=True):
            known = self.n(circuit)
            if first <= known < first + len(own):
                self._append(circuit.digest, known, own[known - first :])
        if self._folder and time.monotonic() - self._kept_at >= KEPT_EVERY:
            self.keep()

    def _append(self, digest: str, known: int, losses: Float[Tensor, "example part"]) -> None:
        self._losses.setdefault(digest, []).append(losses)
        if self._folder:
            self._unkept[f"{digest}:{known}"] = losses

    def keep(self) -> None:
        """Write what is not on disk yet."""
        if self._folder and self._unkept:
            tensors = {name: own.contiguous() for name, own in self._unkept.items()}
            write_atomically(self._folder / f"{self._n_files:06d}.safetensors", save(tensors))
            self._n_files += 1
            self._unkept = {}
        self._kept_at = time.monotonic()

    def _take_up(self, path: Path, like: Float[Tensor, "example part"]) -> None:
        """Read a file; one that is damaged counts as if it were not there."""
        try:
            tensors = load(path.read_bytes())
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError):  # whatever safetensors raises
            return
        for name, own in tensors.items():
            digest, _, first = name.partition(":")
            known = self._losses.get(digest, [])
            alike = own.dtype == like.dtype and own.shape[1:] == like.shape[1:]
            if alike and own.isfinite().all() and first == str(sum(map(len, known))):
                self._losses[digest] = [*known, own]


def _key(model: HookedTransformer, sample: Sample, losses: object) -> str:
    """A short text for what losses depend on: model, examples, versions; ``losses`` stand for the problem's."""
    versions = [version(name) for name in ("retrieval-interp", "transformer-lens", "torch")]
    said = sorted(model.cfg.to_dict().items()), len(sample), sample.seed, losses, versions
    digest = hashlib.sha256(repr(said).encode())
    examples = {"inputs": sample.first.inputs, "targets": sample.first.targets, "roles": sample.roles.positions}
    for name, tensor in sorted({**model.state_dict(), **examples}.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
