"""Where does what is asked go on its way to the answer? Interchange interventions on two models.

``python -m studies.ladder.places``. Two runs differ in one thing: in the name that is asked about (``asked``), or in
which of two facts says which city (``facts``). After every layer, the residual stream at some positions of the first
run is taken from the second. ``moved`` is how much of the difference of the answers goes with it: of the logit of one
answer minus that of the other (``logits``), 0 is as in the first run, 1 as in the second. ``for the last`` is how much
larger the logit of the answer that stands last is, averaged over both names that are asked about. ``places.csv`` has
it for SmolLM2, with nothing, a colon and two words between name and city, and for ``data/equations``, which was
trained on equations. ``two_steps.csv`` has by how many logits SmolLM2's answers to texts of two steps move.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from circuits.model.layers import layers
from circuits.roles import Roles
from circuits.task import Examples
from retrieval_interp import formulation, load
from retrieval_interp.language_tasks.template import token_ids
from retrieval_interp.models.machine import on_machine
from retrieval_interp.prompts.words import CITIES, NAMES
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.prompted import placed

HERE, N, SEED = Path(__file__).parent, 64, 21
LINKS = ("", ":", " lives in")


class Pair(NamedTuple):
    """A text, two others of the same length in which another answer is right, both answers, and positions by name.

    ``last`` is 1 if the answer to the text stands last in it, and -1 if the other answer does.
    """

    base: list[int]
    asked: list[int]
    facts: list[int]
    answers: list[int]
    sites: Mapping[str, list[int]]
    last: int


def begun(tokenizer, link: str) -> Iterator[Pair]:
    """ "Ann lives in Rome. Bob lives in Oslo. Ann lives in" -> Rome; every word is one token."""
    rng, ids, (names, cities) = np.random.default_rng(SEED), ids_by(tokenizer), single_words(tokenizer, link)
    while True:
        (a, b), (x, y), k = rng.choice(names, 2, False), rng.choice(cities, 2, False), int(rng.integers(2))
        facts, exchanged = (f"{a}{link} {one}. {b}{link} {two}." for one, two in ((x, y), (y, x)))
        right, wrong = (a, b)[k], (a, b)[1 - k]
        base, asked, other = (
            ids(f"{said} {name}{link}") for said, name in ((facts, right), (facts, wrong), (exchanged, right))
        )
        first, second, query = (
            len(ids(said)) - 1 for said in (f"{a}{link} {x}", facts.removesuffix("."), f"{facts} {right}")
        )
        answers = [ids(f"{facts} {right}{link} {city}")[-1] for city in ((x, y)[k], (x, y)[1 - k])]
        yield Pair(
            base,
            asked,
            other,
            answers,
            sites({"cities": [first, second], "name asked": [query]}, first, base),
            2 * k - 1,
        )


def ids_by(tokenizer):
    """Return what turns a text into its tokens, without a start token."""
    return lambda text: token_ids(tokenizer, text, bos="none")[0]


def single_words(tokenizer, link: str) -> tuple[list[str], list[str]]:
    """Return the names and the cities that are one token where they stand."""
    ids = ids_by(tokenizer)

    def single(words, before):
        return [word for word in words if len(ids(f"{before}{word}")) == len(ids(before.rstrip())) + 1]

    return [name for name in single(NAMES, "Rome. ") if len(ids(name)) == 1], single(CITIES, f"Eve{link} ")


def two_steps(tokenizer, n: int) -> Iterator[dict]:
    """Yield the tokens of texts of two steps, of the same after each exchange, and of both answers.

    "Ann lives in Rome. Bob lives in Oslo. Eve lives with Ann. Tom lives with Bob. Eve lives in" -> Rome. Exchanged are
    the cities, with whom Eve and Tom live (x1), or who is asked about; ``one step`` asks about Ann instead, and then
    about Bob (``one step, asked``).
    """
    rng, ids, (names, cities) = np.random.default_rng(SEED), ids_by(tokenizer), single_words(tokenizer, " lives in")
    for _ in range(n):
        people, places = rng.choice(names, 4, False), rng.choice(cities, 2, False)
        k, turned = rng.integers(2, size=2)
        hosts, guests, order = people[:2], people[2:], [1, 0] if turned else [0, 1]

        def text(asked, places=places, hosts=hosts, own=people[:2], guests=guests, order=order):
            facts = [f"{host} lives in {city}." for host, city in zip(own, places, strict=True)]
            links = [f"{guests[one]} lives with {hosts[one]}." for one in order]
            return ids(" ".join([*facts, *links, f"{asked} lives in"]))

        yield {
            "base": text(guests[k]),
            "cities": text(guests[k], places=places[::-1]),
            "links": text(guests[k], hosts=hosts[::-1]),
            "asked": text(guests[1 - k]),
            "one step": text(hosts[k]),
            "one step, asked": text(hosts[1 - k]),
            "answers": [ids(f"Eve lives in {city}")[-1] for city in (places[k], places[1 - k])],
        }


@torch.no_grad()
def effects(model, made: list[dict]) -> Iterator[dict]:
    """Yield by how many logits each exchange moves the answer towards what is then right, and how often it is right."""
    answers = torch.tensor([one["answers"] for one in made])

    def ahead(of):  # the logit of the answer to the first text minus that of the other
        tokens = torch.tensor([one[of] for one in made])
        logits = torch.cat([model(some)[:, -1] for some in tokens.split(64)]).gather(1, answers)
        return logits[:, 0] - logits[:, 1]

    for of in ("cities", "links", "asked", "one step, asked"):
        base = ahead("one step" if of.startswith("one") else "base")
        moved = base - ahead(of)
        row = {"exchanged": of, "logits": moved.mean().item(), "se": moved.std().item() / len(made) ** 0.5}
        right = {"base right": (base > 0).float().mean().item(), "right then": (moved > base).float().mean().item()}
        yield row | right


def equations(tokenizer, steps: int) -> Iterator[Pair]:
    """Questions of four chains of equations; the other chain that is asked about is any of the three others."""
    rng, kind = RngStream.EVALUATION.generator(SEED), formulation("equations", steps, 4)
    while True:
        to, order = rng.permuted(np.tile(np.arange(4), (2, steps, 1)), axis=2)
        chains = [int(one) for one in rng.choice(4, 2, False)]
        base, asked = (kind.write(to.tolist(), order.tolist(), one) for one in chains)
        exchanged = to.copy()
        both = np.isin(to[0], [int(base.answer), int(asked.answer)])
        exchanged[0][both] = to[0][both][::-1]
        other = kind.write(exchanged.tolist(), order.tolist(), chains[0])
        assert (other.answer, other.chain[:-1]) == (asked.answer, base.chain[:-1])
        (ids, places), (asked_ids, _), (other_ids, _) = (placed(tokenizer, one) for one in (base, asked, other))
        named = {f"x{k}": [places[f"pair{k}.second", one] for one in chains] for k in range(1, steps + 1)}
        named["name asked"] = [places["query", chains[0]]]
        answers = [token_ids(tokenizer, one.answer, bos="none")[0][-1] for one in (base, asked)]
        own, another = named[f"x{steps}"]
        last = 1 if own > another else -1
        yield Pair(ids, asked_ids, other_ids, answers, sites(named, min(own, another), ids), last)


def sites(named: dict[str, list[int]], first: int, ids: list[int]) -> Mapping[str, list[int]]:
    """Return the named positions, the end, and all others from the first that the texts may differ at."""
    end = len(ids) - 1
    named = {name: where for name, where in named.items() if where != [end]} | {"end": [end]}
    known = {place for where in named.values() for place in where}
    return named | {"others": [place for place in range(first, end) if place not in known]}


@torch.no_grad()
def moved(model, pairs: list[Pair]) -> Iterator[dict]:
    """Yield a row for each exchange, site and layer (-1 is the embedding), and how the model answers by itself."""
    answers = torch.tensor([one.answers for one in pairs])
    streams, differences, roles = {}, {}, Roles.of({"end": torch.full((len(pairs),), len(pairs[0].base) - 1)})
    opened = {}

    def difference(run, residual):  # logit of the other answer minus that of the first, after the last layer
        logits = run.read(residual[:, -1]).gather(1, answers)
        return logits[:, 1] - logits[:, 0]

    for name in ("base", "asked", "facts"):
        tokens = torch.tensor([getattr(one, name) for one in pairs])
        run = opened[name] = layers(model, Examples(tokens, answers, roles))
        stream = [run.embed()]
        for layer in range(model.cfg.n_layers):
            stream.append(run.block(layer, stream[-1]))
        streams[name], differences[name] = stream, difference(run, stream[-1])
    run, base = opened["base"], streams["base"]
    last = torch.tensor([one.last for one in pairs])  # whichever of the two is asked about
    preferred = (-last * (differences["base"] + differences["asked"]) / 2).mean().item()
    for exchange in ("asked", "facts"):
        whole = differences[exchange] - differences["base"]
        right = {
            "base right": (differences["base"] < 0).float().mean(),
            "other right": (differences[exchange] > 0).float().mean(),
        }
        for site in pairs[0].sites:
            where = torch.tensor([one.sites[site] for one in pairs])
            index = where[..., None].expand(-1, -1, base[0].shape[2])
            for layer in range(-1, model.cfg.n_layers):
                residual = base[layer + 1].scatter(1, index, streams[exchange][layer + 1].gather(1, index))
                for above in range(layer + 1, model.cfg.n_layers):
                    residual = run.block(above, residual)
                part = difference(run, residual) - differences["base"]
                spread = (part - whole * part.mean() / whole.mean()).std() / len(pairs) ** 0.5
                row = {"exchange": exchange, "site": site, "layer": layer, "moved": (part.mean() / whole.mean()).item()}
                yield (
                    row
                    | {
                        "moved_se": abs(spread / whole.mean()).item(),
                        "logits": whole.mean().item(),
                        "for the last": preferred,
                    }
                    | {name: share.item() for name, share in right.items()}
                )


if __name__ == "__main__":
    with on_machine():
        models = {name: load(name).model for name in ("equations", "smollm2")}
    texts = {("equations", f"{steps} steps"): equations(models["equations"].tokenizer, steps) for steps in (1, 2, 3)}
    texts |= {("smollm2", f"name{link} city"): begun(models["smollm2"].tokenizer, link) for link in LINKS}
    rows = []
    for (model, text), made in texts.items():
        pairs = []
        while len(pairs) < N:  # of one length, and with as many positions at each site
            one = next(made)
            if not pairs or [*map(len, one.sites.values())] == [*map(len, pairs[0].sites.values())]:
                pairs.append(one)
        print(model, text, models[model].tokenizer.decode(pairs[0].base)[-160:], flush=True)
        rows += [{"model": model, "text": text, **row} for row in moved(models[model], pairs)]
        pd.DataFrame(rows).to_csv(HERE / "places.csv", index=False, float_format="%.4f")
    moved_by = effects(models["smollm2"], [*two_steps(models["smollm2"].tokenizer, 4 * N)])
    pd.DataFrame(moved_by).to_csv(HERE / "two_steps.csv", index=False, float_format="%.3f")
