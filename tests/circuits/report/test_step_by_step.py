from dataclasses import replace

import pytest
import torch
from playwright.sync_api import expect

from circuits import Circuit, Roles
from circuits.ground_truth import compile_circuit
from circuits.report.step_by_step import step_by_step
from tests.browser import opened
from tests.handmade import SYMBOLS, ChainTask, Told

JOIN = {"pair1.second": "pair1.first", "pair2.second": "pair2.first"}
RELAYED = {"L0H0": JOIN, "L1H0": {"pair1.second": "pair2.second"}, "L2H0": {"query": "pair1.second"}}


def test_an_answer_can_be_read_once_the_path_that_brings_it_was_followed(model, circuit):
    told = step_by_step(model, Told(), circuit, n_stories=2)
    assert (told.counted, told.unit) == ({"asked": 64 * 3, "row": 0, "other": 0}, "logit")
    for story in told.stories:
        assert story.words[0] == str(SYMBOLS)
        for roles, (first, join, fetch, last) in zip(story.roles, story.steps, strict=True):
            place = {role: at for at, role in roles.items()}
            (arrow,) = fetch.arrows
            assert (arrow.source, arrow.target, arrow.kind) == (place["query"], place["pair1.second"], "path")
            assert arrow.attention == pytest.approx(1.0, abs=0.02)
            assert [one.reads[0][2] for one in (first, join, fetch, last)] == [False, False, True, True]
            assert first.said.endswith(f"The right answer is {last.reads[0][0]}.")
            assert fetch.said.startswith(f"Layer 1: L1H0 at \u201c{story.words[place['query']]}\u201d (query) looks at")
        assert all(answer[0][2] for answer in story.without[""])
        assert not any(answer[0][2] for answer in story.without["L1H0"])


def test_instances_that_are_not_asked_for_an_answer_are_not_told(model, circuit):
    class Half(Told):
        def instance_losses(self, outputs, examples):
            losses = torch.zeros(len(outputs), 3, 1)
            losses[:, 0] = torch.nan
            return losses

    told = step_by_step(model, Half(), circuit, n_stories=1)
    assert told.counted["asked"] == 64 * 2
    (story,) = told.stories
    assert len(story.steps) == len(story.roles) == len(story.without[""]) == 2
    assert all(answer[0][2] for answer in story.without[""])


def test_where_the_model_goes_another_way_the_story_says_who_had_written_what_it_fetches():
    task = ChainTask(2)
    model = compile_circuit(Circuit(RELAYED), task)
    assert step_by_step(model, task, Circuit(RELAYED)).counted == {"asked": 64 * 3, "row": 0, "other": 0}
    told = step_by_step(model, task, Circuit({**RELAYED, "L2H0": {"query": "pair2.second"}}))
    assert told.counted == {"asked": 64 * 3, "row": 0, "other": 64 * 3}
    for story in told.stories:
        for roles, steps in zip(story.roles, story.steps, strict=True):
            place = {role: at for at, role in roles.items()}
            look, relay = steps[-2].arrows
            assert (look.source, look.target, look.kind) == (place["query"], place["pair1.second"], "other")
            ends = [place["pair1.second"], place["pair2.second"]]
            assert [str(relay.head), relay.source, relay.target] == ["L1H0", *ends]


@pytest.mark.slow
def test_the_page_goes_through_the_steps_by_button_and_key_and_takes_heads_away(model, circuit, tmp_path):
    told = step_by_step(model, Told(), circuit, n_stories=2)
    told.save(tmp_path / "steps.html")
    assert len(told.page()) < 60_000
    with opened(tmp_path / "steps.html") as (page, complaints):
        said, steps = page.locator(".say"), told.stories[0].steps[0]
        expect(said).to_contain_text(steps[2].said)
        page.get_by_role("button", name="next").click()
        expect(said).to_contain_text(steps[3].said)
        for _ in range(3):
            page.get_by_role("button", name="back").press("ArrowLeft")
        expect(said).to_contain_text(steps[0].said)
        page.locator("select.without").select_option("L1H0")
        expect(page.locator(".gone")).to_contain_text("Without L1H0 the circuit answers")
        expect(said).to_contain_text(steps[0].said)
        page.locator("select.without").select_option("")
        page.get_by_role("button", name="back").press("End")
        expect(said).to_contain_text(steps[-1].said)
        page.locator(".instances button").nth(2).click()
        expect(said).to_contain_text(told.stories[0].steps[2][2].said)
        assert complaints == []


def test_an_answer_that_is_read_where_two_roles_stand_has_a_story(model, circuit):
    class Both(Told):
        def __init__(self):
            super().__init__(roles=("end", "query", "pair1.first", "pair1.second"))

        def examples(self, n, seed):
            one = Told().examples(n, seed)
            at = torch.cat([one.roles.positions[:, :1], one.roles.positions], dim=1)
            return replace(one, roles=Roles(self.roles, at))

    for story in step_by_step(model, Both(), circuit, n_stories=2).stories:
        assert all(steps[-1].reads[0][2] for steps in story.steps)
