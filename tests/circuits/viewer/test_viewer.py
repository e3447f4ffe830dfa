"""Attention viewers: what they hold, and what people see and do with them in a browser."""

import copy
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
import torch
import transformers
from playwright.sync_api import expect
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from circuits import BadInput, Examples, Head, Roles, attention_viewer, over_training, side_by_side
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.viewer.frames import Frame
from circuits.viewer.viewer import Viewer
from retrieval_interp import load
from retrieval_interp.cli import main
from retrieval_interp.models import presets
from retrieval_interp.training import training
from tests.browser import opened
from tests.sweeps import MICRO


@pytest.fixture(scope="module")
def examples(task):
    return task.examples(2, 0)


def heads(viewer):
    return [[str(head) for head in frames[-1].heads] for frames in viewer.panels.values()]


def test_all_heads_those_of_a_layer_or_one(random_model, chains):
    examples = chains.examples(1, 0)
    assert heads(attention_viewer(random_model, examples)) == [["L0H0", "L0H1", "L1H0", "L1H1", "L2H0", "L2H1"]]
    assert heads(attention_viewer(random_model, examples, layer=1)) == [["L1H0", "L1H1"]]
    assert heads(attention_viewer(random_model, examples, layer=2, head=1)) == [["L2H1"]]


def test_what_is_shown_is_the_attention_of_the_model_with_three_decimals(random_model, chains):
    examples = chains.examples(3, 0)
    _, cache = random_model.run_with_cache(examples.inputs[1:2])
    ((frame,),) = attention_viewer(random_model, examples, 1, layer=2, head=1).panels.values()
    shown = torch.tensor(frame.attention[0])
    torch.testing.assert_close(shown, cache["pattern", 2][0, 1].detach(), atol=5.1e-4, rtol=0)
    assert shown.shape == (10, 10)
    assert frame.tokens == examples.roles.labels(1, 10)


def test_a_position_that_plays_several_parts_is_labelled_with_all_of_them():
    roles = Roles(("next", "first"), torch.tensor([[[1, 2], [0, 1]]]))
    assert roles.labels(0, 4) == ["1:first", "1:next,2:first", "2:next", "3"]


def test_a_role_that_all_chains_share_is_named_once_and_no_path_leads_from_it():
    roles = Roles(("own", "answer"), torch.tensor([[[0, 1], [3, 3]], [[1, 0], [3, 3]]]))
    assert roles.shared == ("answer",)
    assert roles.labels(0, 4) == ["1:own", "2:own", "2", "answer"]
    assert roles.pairs == ()
    assert Roles(("own", "answer"), roles.positions[:, :, :1]).pairs == (("answer", "own"),)  # of one chain


def test_where_the_model_has_a_tokenizer_the_tokens_are_shown_too():
    model, task, _ = load("equations")
    examples = task.examples(1, 0)
    ((frame,),) = attention_viewer(model, examples, layer=0, head=0).panels.values()
    text = model.tokenizer.decode(examples.inputs[0]).split(" ")
    assert [label.split("|")[0] for label in frame.tokens] == [word.replace("\n", "⏎") for word in text]
    assert frame.tokens[1] == "="
    assert frame.tokens[-1].endswith("|answer")


def shown_tokens(tokenizer, numbers):
    """What a viewer shows of tokens, in a model whose vocabulary is padded."""
    sizes = {"n_layers": 1, "n_heads": 1, "d_model": 4, "d_head": 4, "n_ctx": 64, "attn_only": True}
    model = HookedTransformer(HookedTransformerConfig(**sizes, d_vocab=400, device="cpu"))
    fast = isinstance(tokenizer, Tokenizer)
    model.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer) if fast else tokenizer
    roles = Roles.of({"first": torch.tensor([0])})
    ((frame,),) = attention_viewer(model, Examples(torch.tensor([numbers]), torch.zeros(1), roles)).panels.values()
    return frame.tokens


def test_tokens_of_bytes_are_shown_as_letters_with_visible_white_space():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["The café in Zürich, <b>"] * 9, trainer)
    numbers = tokenizer.encode("The café in Zürich\n\t <日\r").ids
    tokens = shown_tokens(tokenizer, [*numbers, 399])
    parts = [f"#{number}" for number in numbers[-4:-1]]  # the three bytes of a letter
    assert tokens == ["The|1:first", "·café", "·in", "·Zürich", "⏎", "⇥", "·<", *parts, r"\r", "#399"]


def test_tokens_of_pieces_keep_their_spaces():
    tokenizer = Tokenizer(models.BPE({"▁the": 0, "the": 1, "▁▁": 2, "<0xE6>": 3, "<0x0A>": 4}, [], byte_fallback=True))
    spaces = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([*spaces])
    assert shown_tokens(tokenizer, [*range(6)]) == ["·the|1:first", "the", "··", "#3", "⏎", "#5"]


def test_before_a_page_becomes_too_large_a_warning_says_how_large_and_what_makes_it_smaller():
    def page(positions, heads):
        return Viewer({"": (Frame(["x"] * positions, (Head(0, 0),) * heads, []),)}).page()

    with pytest.warns(UserWarning, match=r"about 48 MiB .*layer, head"):
        page(1024, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page(512, 8)


@pytest.mark.slow
def test_the_command_warns_of_a_large_page_in_one_line(tmp_path):
    program = "import circuits.viewer.viewer as v, retrieval_interp.__main__ as m; v.LARGE = 0; m.main()"
    arguments = ["view", "one_layer", "--layer", "0", "--head", "0", "--out", str(tmp_path)]
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    (line,) = run.stderr.splitlines()
    assert line.startswith("warning: ")
    assert ".py" not in line


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"layer": 2}, "there is no layer 2; there are 2, counted from 0"),
        ({"layer": 0, "head": 1}, "there is no head 1; there are 1, counted from 0"),
        ({"head": 0}, "head 0 is given without a layer"),
        ({"example": -1}, "there is no example -1; there are 2"),
        ({"example": 2}, "there is no example 2; there are 2"),
        ({"layer": True}, "the layer is True; expected a whole number"),
    ],
)
def test_what_is_not_there_is_refused(model, examples, chosen, message):
    with pytest.raises(BadInput, match=message):
        attention_viewer(model, examples, **chosen)


def test_only_viewers_of_the_same_steps_stand_side_by_side(model, examples):
    one, three = (over_training(((step, model) for step in steps), examples) for steps in ((0, 10), (0, 20)))
    with pytest.raises(BadInput, match=r"'b' shows steps \[0, 20\], 'a' \[0, 10\]"):
        side_by_side({"a": one, "b": three})
    with pytest.raises(BadInput, match="'a' is several viewers already"):
        side_by_side({"a": side_by_side({"x": one, "y": one})})
    with pytest.raises(BadInput, match="with at least one"):
        side_by_side({})
    with pytest.raises(BadInput, match="no step"):
        over_training([], examples)
    with pytest.raises(BadInput, match="one model at several steps"):
        over_training([(0, model), (10, model)], examples)


@pytest.fixture(scope="module")
def trained_for_a_while(model):
    """A model as it was, before it attended anywhere in particular, and as it is."""
    before = copy.deepcopy(model)
    for block in before.blocks:
        torch.nn.init.zeros_(block.attn.W_Q)
    return [(0, before), (10, model)]


ZOOMED = """() => [...document.querySelectorAll('.attention-panel')].map((box) =>
    [...box.querySelectorAll('canvas')].at(-1).toDataURL())"""  # what is drawn large in each panel


@pytest.mark.slow
def test_pointing_shows_a_head_a_click_locks_it_and_the_slider_leaves_it_locked(
    trained_for_a_while, examples, tmp_path
):
    panels = {f"<b>{n}</b>": over_training(trained_for_a_while, examples, n) for n in range(2)}
    file = tmp_path / "viewer.html"
    side_by_side(panels).save(file)
    with opened(file) as (page, complaints):
        large = page.get_by_role("heading", name="Zoomed")
        expect(large).to_have_text(["L0H0 Zoomed", "L0H0 Zoomed"])
        expect(page.get_by_text("<b>1</b>", exact=True)).to_be_visible()
        thumb = page.get_by_role("heading", name="L1H0", exact=True).first
        thumb.hover()
        expect(large).to_have_text(["L1H0 Zoomed", "L0H0 Zoomed"])
        page.mouse.move(0, 0)
        expect(large).to_have_text(["L0H0 Zoomed", "L0H0 Zoomed"])
        thumb.click()
        page.mouse.move(0, 0)
        expect(large).to_have_text(["L1H0 Zoomed", "L0H0 Zoomed"])

        drawn = {}
        slider = page.get_by_role("slider", name="step of training")
        for key, step in (("", 10), ("ArrowLeft", 0), ("ArrowRight", 10), ("ArrowLeft", 0), ("ArrowRight", 10)):
            if key:
                thumb.hover()  # and leave it: what was pointed at in between does not matter
                page.mouse.move(0, 0)
                slider.focus()
                page.keyboard.press(key)
            expect(page.locator("output")).to_have_text(f"step {step}")
            expect(page.locator(f"[data-drawn='step {step}']")).to_have_count(2)
            expect(large).to_have_text(["L1H0 Zoomed", "L0H0 Zoomed"])
            if key:  # a click draws without a word, a step says that it has drawn
                assert page.evaluate(ZOOMED) == drawn.setdefault(step, page.evaluate(ZOOMED))
        assert all(before != after for before, after in zip(drawn[0], drawn[10], strict=True))
        assert complaints == []


# What the notebooks of VS Code allow in the outputs of cells; scripts, styles and so on of their own are left out.
VS_CODE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src https: http: data:; font-src https:; connect-src https:; child-src https: data:"
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["", VS_CODE], ids=["anywhere", "under VS Code's policy"])
def test_in_a_notebook_the_viewer_brings_all_it_needs_in_a_frame_as_high_as_it_is(policy, model, examples, tmp_path):
    notebook = tmp_path / "notebook.html"
    shown = attention_viewer(model, examples)._repr_html_()
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><link rel=icon href="data:,">'
    # Styles around it, that shrink circuitsvis where it is not in a frame.
    notebook.write_text(f"<!doctype html>{meta}<style>div {{ width: 0 }}</style><p>above</p>{shown}<p>below</p>")
    with opened(notebook) as (page, complaints):
        large = page.frame_locator("iframe").get_by_role("heading", name="Zoomed")
        expect(large).to_have_text("L0H0 Zoomed")
        assert page.frame_locator("iframe").locator("canvas").last.bounding_box()["width"] > 300
        page.frame_locator("iframe").get_by_role("heading", name="L1H0", exact=True).hover()
        expect(large).to_have_text("L1H0 Zoomed")
        page.wait_for_function(
            "() => { const frame = document.querySelector('iframe');"
            " return frame.clientHeight >= frame.contentDocument.body.scrollHeight; }"
        )
        assert complaints == []
    assert len(shown) < 600_000  # packed; circuitsvis alone is twice as large


@pytest.mark.slow
def test_labels_from_files_appear_as_text_and_are_never_run(model, examples, tmp_path):
    nasty = "</script><script>document.title='owned'</script><!--<script>"
    file = tmp_path / "viewer.html"
    side_by_side({nasty: attention_viewer(model, examples)}).save(file)
    with opened(file) as (page, complaints):
        expect(page.get_by_text(nasty, exact=True)).to_be_visible()
        assert page.title() != "owned"
        assert complaints == []


def view(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["view", *map(str, arguments)])
    return ended.value.code


@pytest.mark.slow
def test_the_command_shows_models_side_by_side_and_one_through_its_training(tmp_path, monkeypatch):
    kept = replace(MICRO, recipe=replace(MICRO.recipe, checkpoint_every=20))
    monkeypatch.setitem(presets.PRESETS, "micro", kept)
    for seed in range(2):
        training.start_run(tmp_path / f"seed-{seed}", "micro", seed=seed)
        training.train_run(tmp_path / f"seed-{seed}", "cpu", compiled=False)
    runs = [tmp_path / "seed-0", tmp_path / "seed-1"]
    arguments = ("--layer", 1, "--head", 0, "--examples", 1, "--by", "position", "--out", tmp_path / "both")
    assert view(*runs, *arguments) == 0
    with opened(tmp_path / "both" / "attention.html") as (page, complaints):
        expect(page.get_by_text("Every role across is split by its position")).to_be_visible()
        expect(page.get_by_role("heading", name="Zoomed")).to_have_text(["L1H0 Zoomed"] * 2)
        assert page.locator("[id^=role-attention]").count() == 2
        assert complaints == []
    (runs[0] / "model.safetensors").unlink()  # as in a run that still goes on
    assert view(runs[0], "--training", "--examples", 1, "--out", tmp_path / "training") == 0
    with opened(tmp_path / "training" / "attention.html") as (page, complaints):
        slider = page.get_by_role("slider", name="step of training")
        expect(slider).to_have_attribute("max", "2")  # steps 20, 40 and 60
        assert complaints == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transformer_a", "transformer_d"], "transformer_d has another task than transformer_a"),
        (["transformer_a", "transformer_a"], "transformer_a is given twice"),
        (["transformer_a", "--layer", "12"], "there is no layer 12; there are 12"),
        (["transformer_a", "--head", "0"], "head 0 is given without a layer"),
        (["transformer_a", "--training"], "holds no checkpoints"),
    ],
)
def test_what_cannot_be_shown_is_one_line_and_nothing_is_written(arguments, message, tmp_path, capsys):
    assert view(*arguments, "--out", tmp_path / "page.html") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


class Chars(transformers.PreTrainedTokenizer):
    """A tokenizer that is written in Python and knows ten letters."""

    vocab_size = 10

    def get_vocab(self):
        return {letter: number for number, letter in enumerate("abcdefghij")}

    def _convert_id_to_token(self, index):
        return "abcdefghij"[index]

    def _convert_token_to_id(self, token):
        return "abcdefghij".index(token)

    def _tokenize(self, text):
        return [*text]


def test_tokens_that_a_tokenizer_written_in_python_does_not_know_are_numbers():
    tokens = shown_tokens(Chars(), [0, 9, 17])
    assert [token.split("|")[0] for token in tokens] == ["a", "j", "#17"]
