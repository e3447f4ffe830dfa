"""Is a report true? What it was made of is taken up again, and every number in it is measured anew."""

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.checks.statements import PROTOCOLS, Protocol
from circuits.circuit import Circuit
from circuits.circuit_file import load_circuit, parse_circuit
from circuits.errors import BadInput
from circuits.losses.sample import check_number
from retrieval_interp.models.model_dir import CIRCUIT
from retrieval_interp.reproduction.stored_report import check_is_of

ABSOLUTE, RELATIVE = 1e-4, 1e-3  # by how much numbers may differ: other machines add in another order
# What follows from where numbers stand among others, and moves by steps when one of them moves at all.
STEPS = {"p": 0.02, "beaten": 2.0}
# How a circuit was found is not searched for again, and sentences say again what numbers say.
NOT_COMPARED = ("metadata", "circuit", "discovery", "sentence", "sentences")


@dataclass(frozen=True)
class Difference:
    """Something that was not found again.

    Attributes:
        key: where it stands, such as ``paths[2].losses.uniform``.
        reported: what the report says.
        found: what was measured now; None where there is nothing.
    """

    key: str
    reported: object
    found: object

    def __str__(self) -> str:
        return f"{self.key}: reported {self.reported!r}, found {self.found!r}"


@dataclass(frozen=True)
class Settings:
    """With what a report was made.

    Attributes:
        model: its name or path.
        weights_sha256: the hash of its weights.
        examples: on how many it was measured.
        seed: of the examples.
        threshold: a loss below it counted as low.
        protocol: what decided whether the circuit holds.
    """

    model: str
    weights_sha256: str
    examples: int
    seed: int
    threshold: float
    protocol: Protocol

    @classmethod
    def of(cls, report: dict[str, Any], path: Path) -> "Settings":
        """The settings of a report that was read from ``path``.

        Raises:
            BadInput: it does not say them.
        """
        metadata = report.get("metadata")
        # Reports of before schema 3 had no other protocol.
        said = {"protocol": "extended", **report, **metadata} if isinstance(metadata, dict) else {}
        kinds: dict[str, Any] = {
            "model": str,
            "weights_sha256": str,
            "examples": int,
            "seed": int,
            "threshold": (int, float),
            "protocol": str,
        }
        for key, kind in kinds.items():
            if not isinstance(said.get(key), kind) or isinstance(said[key], bool):
                raise BadInput(f"{path}: does not say its {key}, so that it cannot be measured again")
        if said["protocol"] not in PROTOCOLS:
            raise BadInput(f"{path}: its protocol is {said['protocol']!r}; expected {' or '.join(PROTOCOLS)}")
        if said["threshold"] > sys.float_info.max:
            raise BadInput(f"{path}: its threshold is too large to be a number")
        try:
            check_number(said["examples"])
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
        return cls(**{key: said[key] for key in kinds})


def circuit_of(report: dict[str, Any], path: Path) -> Circuit:
    """The circuit of a report: its own, or of an older report the one that stands beside it.

    Raises:
        BadInput: it is damaged, or there is none.
    """
    said = report.get("circuit")
    if not isinstance(said, dict) or not isinstance(said.get("yaml"), str):
        beside = path.parent / CIRCUIT
        if not beside.is_file():
            raise BadInput(f"{path}: is of an older version, without its circuit, and no {CIRCUIT} stands beside it")
        circuit = load_circuit(beside)
        check_is_of(report, circuit, path.parent)
        return circuit
    circuit = parse_circuit(said["yaml"], f"{path}: circuit.yaml", path.parent)
    if circuit.digest != said.get("sha256"):
        raise BadInput(f"{path}: its circuit is not the one that it was made of; circuit.sha256 is of another")
    return circuit


def differences(reported: object, found: object, key: str = "") -> Iterator[Difference]:
    """Everything that a report says otherwise than another one, in whatever is no sentence.

    Numbers may differ by 1e-4 and a thousandth, p-values by 0.02, and how many random circuits were beaten by 2.
    """
    if isinstance(reported, dict) and isinstance(found, dict):
        for name in dict.fromkeys((*reported, *found)):
            if name not in NOT_COMPARED:
                pair = reported.get(name), found.get(name)
                if name not in STEPS or not _same(*pair, STEPS[name]):
                    yield from differences(*pair, f"{key}.{name}" if key else name)
    elif isinstance(reported, list) and isinstance(found, list) and len(reported) == len(found):
        for place, pair in enumerate(zip(reported, found, strict=True)):
            yield from differences(*pair, f"{key}[{place}]")
    elif not _same(reported, found):
        yield Difference(key, reported, found)


def _same(reported: object, found: object, step: float = 0.0) -> bool:
    """Whether they are equal, or numbers that are close; whole ones only where they may be a ``step`` apart."""
    kinds = {type(reported), type(found)}
    if kinds <= {int, float} and (step or float in kinds):
        with suppress(OverflowError):  # a whole number that is too large to be another
            return math.isclose(reported, found, rel_tol=RELATIVE, abs_tol=step or ABSOLUTE)  # type: ignore[arg-type]
    return type(reported) is type(found) and reported == found
