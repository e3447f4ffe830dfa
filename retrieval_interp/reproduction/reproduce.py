"""Reproduce a report: read its settings and its circuit, and compare it with a new report."""

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
from circuits.given import number_of_examples
from retrieval_interp.models.model_dir import CIRCUIT
from retrieval_interp.reproduction.stored_report import check_is_of

ABSOLUTE, RELATIVE = 1e-4, 1e-3  # tolerances of numbers; machines differ in the order of summation
# Tolerances of ranks and counts, which jump when a number moves a little.
STEPS = {"p": 0.02, "beaten": 2.0}
# Discovery is not run again, and sentences only repeat numbers; the search for other circuits has ended.
NOT_COMPARED = ("metadata", "circuit", "discovery", "equivalence", "sentence", "sentences")


@dataclass(frozen=True)
class Difference:
    """A value that was not reproduced.

    Attributes:
        key: the place of the value, such as ``paths[2].losses.uniform``.
        reported: the value in the report.
        found: the value measured now; None if there is none.
    """

    key: str
    reported: object
    found: object

    def __str__(self) -> str:
        return f"{self.key}: reported {self.reported!r}, found {self.found!r}"


@dataclass(frozen=True)
class Settings:
    """The settings of a report.

    Attributes:
        model: the name or path of the model.
        weights_sha256: the hash of the model's weights.
        examples: the number of examples.
        seed: the seed of the examples.
        threshold: the threshold; a loss below it counted as low.
        protocol: the protocol that decided whether the circuit holds.
    """

    model: str
    weights_sha256: str
    examples: int
    seed: int
    threshold: float
    protocol: Protocol

    @classmethod
    def of(cls, report: dict[str, Any], path: Path) -> "Settings":
        """Return the settings of a report that was read from ``path``.

        Raises:
            BadInput: a setting is missing or invalid.
        """
        metadata = report.get("metadata")
        # Reports before schema 3 all used the protocol ``extended``.
        values = {"protocol": "extended", **report, **metadata} if isinstance(metadata, dict) else {}
        kinds: dict[str, Any] = {
            "model": str,
            "weights_sha256": str,
            "examples": int,
            "seed": int,
            "threshold": (int, float),
            "protocol": str,
        }
        for key, kind in kinds.items():
            if not isinstance(values.get(key), kind) or isinstance(values[key], bool):
                raise BadInput(f"{path}: its {key} is missing or invalid; the report cannot be reproduced")
        if values["protocol"] not in PROTOCOLS:
            raise BadInput(f"{path}: its protocol is {values['protocol']!r}; expected {' or '.join(PROTOCOLS)}")
        if values["threshold"] > sys.float_info.max:
            raise BadInput(f"{path}: its threshold is too large")
        try:
            number_of_examples(values["examples"])
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
        return cls(**{key: values[key] for key in kinds})


def circuit_of(report: dict[str, Any], path: Path) -> Circuit:
    """Return the circuit in a report; for an older report, the circuit file in its folder.

    Raises:
        BadInput: the circuit is missing or damaged, or not the one of the report.
    """
    stored = report.get("circuit")
    if not isinstance(stored, dict) or not isinstance(stored.get("yaml"), str):
        beside = path.parent / CIRCUIT
        if not beside.is_file():
            raise BadInput(f"{path}: the report is of an older version without a circuit, and {beside} is missing")
        circuit = load_circuit(beside)
        check_is_of(report, circuit, path.parent)
        return circuit
    circuit = parse_circuit(stored["yaml"], f"{path}: circuit.yaml", path.parent)
    if circuit.digest != stored.get("sha256"):
        raise BadInput(f"{path}: its circuit was changed; circuit.sha256 is the hash of another circuit")
    return circuit


def differences(reported: object, found: object, key: str = "") -> Iterator[Difference]:
    """Yield every difference between two reports, except in metadata, circuit, discovery, sentences and searches.

    Tolerances: 1e-4 or a thousandth for numbers with a fraction, 0.02 for p-values, 2 for the number of random circuits
    beaten. Other values must be equal.
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
    """Whether two values are equal or close; whole numbers may differ only with a tolerance ``step``."""
    kinds = {type(reported), type(found)}
    if kinds <= {int, float} and (step or float in kinds):
        with suppress(OverflowError):  # a whole number too large for a float
            return math.isclose(reported, found, rel_tol=RELATIVE, abs_tol=step or ABSOLUTE)  # type: ignore[arg-type]
    return type(reported) is type(found) and reported == found
