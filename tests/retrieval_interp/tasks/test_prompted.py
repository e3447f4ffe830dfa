import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from circuits import Task
from circuits.task import Told
from circuits.utils.tokens import visible
from retrieval_interp.prompts import FORMULATIONS, Equations, formulation
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.prompted import ANSWER, Prompted, as_text, placed, prompt_layout, question_ids
from retrieval_interp.tasks.words import Kind, WordsTask
from retrieval_interp.theory.information_flow import layers_until
from tests.refusals import assert_refused
from tests.tokenizing import byte_pairs


@pytest.fixture(scope="module")
def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level pair encoding, as language models have it, trained here on some of the questions: words in pieces."""
    texts = [question.prompt for name in FORMULATIONS for question in formulation(name).questions(20, 0)]
    return PreTrainedTokenizerFast(tokenizer_object=byte_pairs(texts, 400))


@pytest.mark.parametrize("name", FORMULATIONS)
def test_every_symbol_is_found_at_its_last_token_whatever_the_tokenizer(name, bytes_tokenizer) -> None:
    for question in formulation(name).questions(10, 1):
        ids, places = placed(bytes_tokenizer, question)
        pieces = [bytes_tokenizer.decode(token) for token in ids]
        assert "".join(pieces) == question.prompt + "\n"
        for mark in question.marks:
            place = places[mark.role, mark.chain]
            before = "".join(pieces[: place + 1])
            assert len(before) - len(pieces[place]) < mark.end <= len(before), "all of the symbol has just been read"
        assert places[ANSWER, question.asked] == len(pieces) - 1


def test_in_a_chat_the_question_stands_where_the_template_puts_it() -> None:
    tokenizer = EquationsTask(n_steps=2).tokenizer
    tokenizer.chat_template = "{% for message in messages %}value of {{ message['content'] }} .\n{% endfor %}"
    question = Equations(4, 2).questions(1, 0)[0]
    assert as_text(tokenizer, question.prompt) == f"value of {question.prompt} .\n"
    ids, places = placed(tokenizer, question)
    words = tokenizer.convert_ids_to_tokens(ids)
    assert words[:2] == ["value", "of"]
    assert words[places["query", question.asked]] == question.chain[0]
    assert words[places["pair2.second", question.asked]] == question.answer


def test_a_tokenizer_that_leaves_something_out_or_does_not_know_a_word_is_refused() -> None:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(("a", "=", "b"))}))
    without_7 = [pre_tokenizers.Split("7", "removed"), pre_tokenizers.WhitespaceSplit()]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(without_7)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    assert len(question_ids(fast, "a = b")[0]) == 3
    assert_refused("the tokenizer leaves out '7'", question_ids, fast, "a = 7")
    (other,) = formulation("lives_with").questions(1, 0)
    assert_refused("the tokenizer does not know '", placed, EquationsTask(n_steps=2).tokenizer, other)


@pytest.mark.parametrize("name", FORMULATIONS)
def test_every_formulation_is_a_task_for_the_circuit_tools(name: str, bytes_tokenizer: PreTrainedTokenizerFast) -> None:
    task = Prompted(formulation(name), bytes_tokenizer)
    assert isinstance(task, Task)
    examples = task.examples(6, seed=0)
    assert examples.roles.names == task.roles
    assert examples.inputs.shape[0] == 6
    questions = task.formulation.questions(300, 0)
    for row, target in zip(examples.inputs, examples.targets, strict=True):
        text = bytes_tokenizer.decode(row)
        answers = [q.answer for q in questions if q.prompt + "\n" == text]
        assert answers[0].startswith(bytes_tokenizer.decode(int(target)))


def test_too_different_lengths_are_refused(bytes_tokenizer: PreTrainedTokenizerFast, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("retrieval_interp.tasks.prompted.TRIES", 1)
    assert_refused("of 40 questions only", Prompted(formulation("relatives"), bytes_tokenizer).examples, 40, seed=0)


@pytest.mark.parametrize("n_steps", range(1, 8))
def test_to_read_the_answer_below_the_question_takes_no_layer_more(n_steps: int) -> None:
    layout = prompt_layout(Equations(4, n_steps))
    end = f"x{n_steps}"
    assert layers_until(layout, ANSWER, end, causal=True) == layers_until(layout, "query", end, causal=True)


def test_a_model_of_another_vocabulary_and_impossible_numbers_of_examples_are_refused() -> None:
    task = EquationsTask(n_steps=2)
    assert set(task.layout.roles) == set(task.roles)
    examples = task.examples(2, seed=0)
    outputs = torch.zeros(2, examples.inputs.shape[1], 7)
    assert_refused("the model has 7 output tokens; its tokenizer has", task.losses, outputs, examples)
    for n in (0, 10**30):
        assert_refused(f"the number of examples is {n}; expected a whole number from 1 to 1000000", task.examples, n, 0)


EQUATIONS = EquationsTask(n_steps=2)


@pytest.mark.parametrize("task", [EQUATIONS, EQUATIONS.prompted, WordsTask(Kind.ioi)])
def test_a_task_of_tokens_says_the_most_likely_answers_and_which_of_them_is_right(task) -> None:
    assert isinstance(task, Told)
    examples, (role,), rows = task.examples(3, seed=0), task.output_roles, torch.arange(3)
    right, at = examples.targets.reshape(3, -1)[:, 0], examples.roles[role][:, 0]
    outputs = torch.zeros(*examples.inputs.shape, len(task.tokenizer))
    outputs[rows, at, right], outputs[rows, at, right - 1] = 5.0, 7.0
    for told, token, text, place in zip(task.said(outputs, examples), right, task.texts(examples), at, strict=True):
        (first, second, _), *_ = told
        assert (first[0], first[2]) == (visible(task.tokenizer, int(token) - 1), False)
        assert (second[0], second[2]) == (visible(task.tokenizer, int(token)), True)
        assert 1 > first[1] > second[1] > 0
        assert len(text) == examples.inputs.shape[1] > place
