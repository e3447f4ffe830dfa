import torch

from circuits import Circuit, Head, OneHot, run_ablated
from retrieval_interp import load
from retrieval_interp.prompts import Equations
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.equations import KINDS, NOT_ASKED, VALUE, VARIABLE, WORD, EquationsTask, Texts
from retrieval_interp.tasks.prompted import Prompted

TASK = EquationsTask(n_steps=3, n_chains=2)


def one(links: list[list[int]], order: list[list[int]], asked: int, steps: int) -> Texts:
    return Texts(torch.tensor([links]), torch.tensor([order]), torch.tensor([asked]), torch.tensor([steps]))


def test_a_text_and_what_is_asked_in_it_by_hand() -> None:
    # a = 1, b = 0; then c = b, d = a, the second of them first
    examples = TASK.assemble(one([[1, 0], [1, 0], [0, 1]], [[0, 1], [1, 0], [0, 1]], asked=0, steps=2))
    words = TASK.tokenizer.convert_ids_to_tokens(examples.inputs[0].tolist())
    assert words[:16] == ["a", "=", "1", "\n", "b", "=", "0", "\n", "d", "=", "a", "\n", "c", "=", "b", "\n"]
    assert words[16:22] == ["What", "is", "the", "value", "of", "c"]
    answer = 16 + words[16:].index("\n")
    assert words[answer + 1] == "0"
    assert set(words[answer + 2 :]) == {"\n"}
    asked = {
        (place, KINDS[kind]): TASK.words[target]
        for place, row in enumerate(examples.targets[0].tolist())
        for kind, target in enumerate(row)
        if target != NOT_ASKED
    }
    assert asked == {
        **{(2, "variable"): "a", (6, "variable"): "b", (10, "variable"): "d", (14, "variable"): "c"},
        **{(2, "value"): "1", (6, "value"): "0", (10, "value"): "1", (14, "value"): "0", (21, "value"): "0"},
        **{(answer, "word"): "0", (answer + 1, "word"): "\n"},
    }
    assert examples.roles["answer"].tolist() == [[answer]]


def test_texts_are_the_questions_of_the_prompts() -> None:
    drawn = TASK.draw(50, RngStream.TRAINING, 0)
    inputs = TASK.assemble(drawn).inputs
    assert {*drawn.steps.tolist()} == {1, 2, 3}
    for number in range(50):
        steps = int(drawn.steps[number])
        choices = (tuple(tuple(row) for row in part[number, :steps].tolist()) for part in (drawn.links, drawn.order))
        question = Equations(2, steps).write(*choices, asked=int(drawn.asked[number]))
        expected = TASK.tokenizer(f"{question.prompt}\n{question.answer}")["input_ids"]
        written = inputs[number].tolist()
        assert written[: len(expected)] == expected
        assert set(written[len(expected) :]) <= {TASK.words.index("\n")}


def test_who_knows_only_the_acceptable_answers_comes_to_one_minus_one_over_n() -> None:
    examples = TASK.examples(10, seed=0)
    outputs = torch.full((10, examples.inputs.shape[1], TASK.d_output), -50.0)
    outputs[..., [TASK.words.index("0"), TASK.words.index("1")]] = 0.0
    assert TASK.losses(outputs, examples).allclose(torch.tensor(0.5))
    sure = outputs.scatter(2, examples.targets[:, None, None].expand(-1, outputs.shape[1], 1), 50.0)
    assert TASK.losses(sure, examples).max() < 1e-6


def test_training_losses_vanish_where_every_target_is_hit_and_only_there() -> None:
    examples = TASK.assemble(TASK.draw(8, RngStream.TRAINING, 0))
    outputs = torch.zeros(*examples.inputs.shape, TASK.d_output)
    for kind in (VARIABLE, VALUE, WORD):
        wanted = examples.targets[..., kind]
        hit = outputs.scatter(2, wanted.clamp(min=0)[..., None], 50.0)
        assert TASK.training_losses(hit, examples)[:, kind].max() < 1e-6
    guessing = TASK.training_losses(outputs, examples).mean(dim=0)
    assert guessing.allclose(torch.tensor([6.0, 2.0, float(TASK.d_output)]).log())


def test_the_tokenizer_gives_back_what_it_was_given_and_knows_what_it_does_not() -> None:
    question = Equations(2, 3).questions(1, 0)[0]
    encoded = TASK.tokenizer(question.prompt, return_offsets_mapping=True)
    pieces = [question.prompt[start:end] for start, end in encoded["offset_mapping"]]
    assert pieces == TASK.tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    assert "".join(pieces) == question.prompt.replace(" ", "")
    assert TASK.tokenizer("z")["input_ids"] == [TASK.tokenizer.unk_token_id]


def test_the_language_model_that_comes_with_the_toolkit_answers_new_questions() -> None:
    model, task, _ = load("equations")
    assert isinstance(task, EquationsTask)
    for steps in range(1, task.n_steps + 1):
        asked = Prompted(Equations(task.n_chains, steps), task.tokenizer)
        examples = asked.examples(64, seed=123)
        with torch.no_grad():
            losses = asked.losses(model(examples.inputs), examples)
        assert losses.mean() < 0.02


def test_all_chains_have_their_roles_and_share_those_of_the_lines_the_query_and_the_answer() -> None:
    task = EquationsTask(3, 4)
    examples = task.examples(16, seed=1)
    roles = examples.roles
    assert roles.names == task.roles
    lines = [f"{name}.second" for name in "abcdefghijkl"]
    assert {*roles.shared} == {"query", "answer", *lines}
    assert all(source not in roles.shared for source, _ in roles.pairs)
    for example in range(16):
        words = task.tokenizer.convert_ids_to_tokens(examples.inputs[example].tolist())
        said = {words[start]: words[start + 2] for start in range(0, 48, 4)}
        assert {role: words[int(roles[role][example, 0])] for role in lines} == {
            f"{name}.second": value for name, value in said.items()
        }
        first = [words[int(roles["pair1.first"][example, chain])] for chain in range(4)]
        assert sorted(first) == ["i", "j", "k", "l"]
        assert first[0] == words[int(roles["query"][example, 0])]
        for chain in range(4):
            at = {role: words[int(roles[role][example, chain])] for role in roles}
            assert at["pair1.second"] == said[at["pair1.first"]] == at["pair2.first"]
            assert at["pair2.second"] == said[at["pair2.first"]] == at["pair3.first"]
            assert at["pair3.second"] == said[at["pair3.first"]]
            assert at["answer"] == at["pair1.end"] == "\n"
            if chain == 0:
                assert at["pair3.second"] == task.words[int(examples.targets[example])]
            variable = {role: int(roles.group("variable", role)[example, chain]) for role in roles}
            assert "efgh"[variable["pair2.end"]] == "efgh"[variable["g.second"]] == at["pair2.first"]
            assert int(roles.group("asked", "pair1.first")[example, chain]) == (chain == 0)


def test_a_head_that_is_led_to_the_own_line_makes_the_model_answer_the_value_of_the_line_that_it_leaves() -> None:
    model, task, circuit = load("equations")
    examples = task.examples(128, seed=11)
    roles, tokens, n_variables = examples.roles, examples.inputs, 12
    number = roles.group("variable", "pair2.second")[:, 0]
    lines = torch.stack([roles[f"{name}.second"][:, 0] for name in "abcdefgh"], dim=1)

    def value(line: torch.Tensor) -> torch.Tensor:  # of a line of the second block, through the one of the first
        return tokens.gather(1, lines.gather(1, tokens.gather(1, line[:, None])))[:, 0] - n_variables

    for head in (Head(4, index) for index in range(3)):
        left = torch.zeros_like(number)
        for (_, target), condition in circuit.heads[head].where:
            there = condition.holds(roles)[:, 0]
            left[there] = value(roles[target][:, 0])[there]
        led = Circuit({head: OneHot({"pair1.second": "pair2.second"}, circuit.heads[head].elsewhere)})
        said = run_ablated(model, led, examples)[:, -1, n_variables : n_variables + 4].argmax(dim=-1)
        assert (said == left).float().mean() > 0.9
        assert (said == examples.targets - n_variables).float().mean() < 0.1
