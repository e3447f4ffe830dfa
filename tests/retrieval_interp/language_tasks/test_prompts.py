"""The prompts of the language tasks, in tokenizers made here: words, and byte-level pairs as in language models."""

import re
from inspect import unwrap
from string import Formatter

import pytest
import torch
from tokenizers import Regex, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from retrieval_interp.language_tasks import docstring, greater_than, ioi
from retrieval_interp.language_tasks.language_task import NONE, TokenAnswers
from retrieval_interp.language_tasks.registry import LANGUAGE_TASKS, language_task
from retrieval_interp.language_tasks.template import word_tokenizer
from retrieval_interp.tasks.words import Kind, WordsTask
from tests.refusals import assert_refused
from tests.tokenizing import byte_pairs, characters

DOCSTRING_WORDS = {
    slot: docstring.FUNCTIONS if slot == "name" else docstring.WORDS if slot[0] == "w" else docstring.ARGUMENTS
    for _, slot, _, _ in Formatter().parse(docstring.TEXT)
    if slot
}


def texts():
    """Texts with all words of the tasks."""
    names = {"A": ioi.NAMES, "B": ioi.NAMES[::-1], "S": ioi.NAMES, "PLACE": ioi.PLACES, "OBJECT": ioi.OBJECTS}
    for number in range(50):
        for text, words in (*((wording, names) for wording in ioi.WORDINGS), (docstring.TEXT, DOCSTRING_WORDS)):
            yield text.format(**{slot: own[number % len(own)] for slot, own in words.items()})


@pytest.fixture(scope="module")
def pairs():
    return PreTrainedTokenizerFast(tokenizer_object=byte_pairs(texts(), 2000, "<end>"), eos_token="<end>")


@pytest.fixture(scope="module")
def letters():
    return characters([*texts(), "0123456789"])


def years(but=(), digits=2):
    """Words; a year is two of them, as in GPT-2, or four digits, and some may be missing."""
    fixed = re.findall(r"\w+", re.sub(r"\{\w+\}", "", greater_than.TEXTS[0]))
    known = [one for one in (greater_than.YEARS if digits == 2 else greater_than.DIGITS) if one not in but]
    tokenizer = word_tokenizer([*dict.fromkeys((*fixed, *greater_than.NOUNS, *known))])
    apart = [pre_tokenizers.Split(Regex(" +"), "removed"), pre_tokenizers.Split(Regex(r"\d" * digits), "isolated")]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(apart)
    return tokenizer


def word_at(task, examples, example, role, of=None):
    tokens = examples.inputs if of is None else of
    return task.tokenizer.decode(tokens[example, examples.roles[role][example, 0]]).strip()


def assert_varies(examples, role):
    """No position tells the answer: the role has several, in texts of the same length."""
    assert examples.roles.layout is None
    assert examples.roles.valid is None
    assert len(examples.roles[role].unique()) > 1


def side(task, examples, example, which):
    """The right answers (0) or the wrong ones (1) of the first instance."""
    tokens = examples.targets[example, 0, which]
    return [task.tokenizer.decode(token).strip() for token in tokens[tokens != NONE]]


@pytest.mark.parametrize("kind", ["words", "pairs"])
def test_the_indirect_object_is_the_name_that_stands_there_once(kind, request):
    tokenizer = WordsTask(Kind.ioi).tokenizer if kind == "words" else request.getfixturevalue("pairs")
    task = language_task("ioi", tokenizer)
    examples = task.examples(40, seed=0)
    lengths = examples.roles.valid.sum(dim=1)
    assert lengths.unique().numel() == 3
    for one in range(40):
        io, subject, again = (word_at(task, examples, one, role) for role in ("IO", "S1", "S2"))
        assert subject == again
        assert io != subject
        assert ([io], [subject]) == (side(task, examples, one, 0), side(task, examples, one, 1))
        assert word_at(task, examples, one, "end") == "to"
        assert examples.roles["end"][one] == lengths[one] - 1
        order = [int(examples.roles[role][one]) for role in ("IO", "S1", "S1+1", "S2", "end")]
        is_baba = int(examples.roles.groups["template"][one, 0, 0])
        assert order[2] == order[1] + 1
        assert sorted(order[:2], reverse=bool(is_baba)) == order[:2]
        changed = (examples.inputs[one] != examples.counterfactual[one]).nonzero().flatten().tolist()
        assert {*changed} == {order[0], order[1], order[3]}
        others = [word_at(task, examples, one, role, examples.counterfactual) for role in ("IO", "S1", "S2")]
        assert len({io, subject, *others}) == 5
    assert {*examples.roles.groups["template"][:, 0, 0].tolist()} == {0, 1}


def test_a_repeated_text_is_answered_by_the_token_after_the_same_token():
    task = language_task("induction", WordsTask(Kind.induction).tokenizer)
    examples = task.examples(40, seed=0)
    at = {role: examples.inputs.gather(1, examples.roles[role]) for role in task.roles}
    assert torch.equal(at["earlier"], at["end"])
    assert torch.equal(at["next"], examples.targets[:, :, 0, 0])
    assert not (examples.targets[:, :, 0] == examples.targets[:, :, 1]).any()
    assert torch.equal(examples.roles["next"], examples.roles["earlier"] + 1)
    far = examples.roles["end"] - examples.roles["earlier"]
    assert {*far[:, 0].tolist()} == {*range(6, 13)}
    for tokens, other, distance in zip(examples.inputs, examples.counterfactual, far[:, 0].tolist(), strict=True):
        before = tokens[: 24 - distance + 1]
        assert before.unique().numel() == len(before)
        assert torch.equal(tokens[len(before) :], other[len(before) :])
        assert not {*other[: len(before)].tolist()} & {*tokens.tolist()}


def test_the_right_years_are_those_after_the_first():
    task = language_task("greater_than", years())
    examples = task.examples(20, seed=0)
    for one in range(20):
        year = word_at(task, examples, one, "YY")
        assert side(task, examples, one, 0) == [later for later in greater_than.YEARS if later > year]
        assert side(task, examples, one, 1) == [other for other in greater_than.YEARS if other <= year]
        assert word_at(task, examples, one, "YY", examples.counterfactual) == "01"
        assert word_at(task, examples, one, "XX") == word_at(task, examples, one, "end")
        assert word_at(task, examples, one, "noun") in greater_than.NOUNS
    assert_varies(examples, "YY")


def test_where_digits_are_tokens_the_first_digit_of_a_later_year_is_right():
    task = language_task("greater_than", years(digits=1))
    examples = task.examples(40, seed=0)
    words = re.findall(r"\w+", re.sub(r"\{\w+\}", "", greater_than.TEXTS[0]))
    assert examples.inputs.shape[1] == len(words) + len(["war", *"1732", *"17"])
    for one in range(40):
        first = word_at(task, examples, one, "YY")
        assert side(task, examples, one, 0) == [later for later in greater_than.DIGITS if later > first]
        assert side(task, examples, one, 1) == [other for other in greater_than.DIGITS if other < first]
        assert "1" <= first <= "8"
        assert word_at(task, examples, one, "YY", examples.counterfactual) == "0"
        assert word_at(task, examples, one, "XX") == word_at(task, examples, one, "end")


def test_every_year_has_a_later_one_where_99_is_no_token_and_a_year_that_is_missing_is_named():
    task = language_task("greater_than", years(but=("99",)))
    examples = task.examples(500, seed=0)
    assert max(int(word_at(task, examples, one, "YY")) for one in range(500)) == 97
    assert side(task, examples, 0, 0)[-1] == "98"
    few = language_task("greater_than", years(but=("50", "99")))
    assert_refused(r"the years of greater_than: 97 .*\(50 are not\); expected 98", few.examples, 2, seed=0)


def test_the_next_argument_of_a_docstring_is_the_third_of_the_definition(pairs):
    task = language_task("docstring", pairs)
    examples = task.examples(10, seed=0)
    for one in range(10):
        a, b, c = (word_at(task, examples, one, f"{place}_def") for place in "ABC")
        assert len({a, b, c}) == 3
        assert [word_at(task, examples, one, f"{place}_doc") for place in "AB"] == [a, b]
        assert TokenAnswers.right(task, examples)[one] == [f"·{c}"]
        assert side(task, examples, one, 0) == [c]
        wrong = side(task, examples, one, 1)
        assert len({*wrong, c}) == 5
        assert {a, b} < {*wrong}
        assert word_at(task, examples, one, "end") == "param"
        others = {word_at(task, examples, one, f"{place}_def", examples.counterfactual) for place in "ABC"}
        assert not others & {a, b, c}
        assert word_at(task, examples, one, "A_doc", examples.counterfactual) == a
    assert_varies(examples, "C_def")


@pytest.mark.parametrize("name", LANGUAGE_TASKS)
def test_the_same_seed_gives_the_same_prompts_and_another_seed_others(name, pairs):
    task = language_task(name, years() if name == "greater_than" else pairs)
    first, again, other = (task.examples(16, seed) for seed in (3, 3, 4))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.counterfactual, again.counterfactual)
    assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize("name", ["ioi", "greater_than", "docstring"])
def test_words_of_several_tokens_are_refused_in_one_line(name, letters):
    assert_refused(f"{name}: 0 are one token in this tokenizer", language_task(name, letters).examples, 2, seed=0)


def test_words_of_several_tokens_are_left_out_if_enough_remain():
    words = [one for one in ioi.words() if one not in ("Mary", "John", "ring")]
    task = language_task("ioi", word_tokenizer(words))
    found = {task.tokenizer.decode(token) for token in task.examples(200, seed=0).inputs.unique()}
    assert found & {*ioi.words()} == {*words}


def test_an_unknown_task_and_a_tokenizer_with_few_tokens_are_refused():
    expected = "unknown task 'ioy'; expected one of induction, ioi, greater_than, docstring"
    assert_refused(expected, language_task, "ioy", WordsTask(Kind.ioi).tokenizer)
    assert_refused("expected at least 48", language_task("induction", word_tokenizer(["a", "b"])).examples, 1, seed=0)


@pytest.mark.parametrize("tokenizer", [None, "gpt2"])
def test_what_is_no_tokenizer_is_named(tokenizer):
    expected = f"ioi: the tokenizer is {tokenizer!r}; expected a tokenizer of transformers"
    assert_refused(expected, unwrap(language_task), "ioi", tokenizer)  # without the check of its annotations
