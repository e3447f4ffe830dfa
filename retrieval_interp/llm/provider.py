"""Language models of TransformerLens as models for Inspect: ``--model hooked/NAME``."""

from typing import Any

import anyio
import torch
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, ModelUsage, StopReason
from inspect_ai.tool import ToolChoice, ToolInfo
from transformer_lens.utilities import sample_logits

from circuits.errors import BadInput
from circuits.model.transformer import Transformer, is_bridge
from retrieval_interp.llm.continued import Continued
from retrieval_interp.llm.forced import log_likelihoods
from retrieval_interp.llm.tasks import CHOICES, MAX_TOKENS
from retrieval_interp.models.language import language_model
from retrieval_interp.tasks.prompted import answer_ids, as_text, question_ids

UNKNOWN_OPTIONS = ("top_p", "top_k", "stop_seqs", "num_choices", "frequency_penalty", "presence_penalty", "logit_bias")
COLDEST = 1e-6  # below this temperature, the most likely token is taken
TOGETHER = 10  # answers that are drawn at once: if a question is asked once more, or a model reads prompts once


class HookedAPI(ModelAPI):
    """A language model of TransformerLens that answers one question at a time, in this process."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        """Load a model by name.

        Raises:
            BadInput: there is no such model, it reads no text, or a model argument is given.
        """
        if model_args:
            raise BadInput(f"hooked/{model_name} takes no model argument; got {', '.join(model_args)}")
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        self.model: Transformer = language_model(model_name)
        self._one_at_a_time = anyio.Lock()
        self._drawn: dict[tuple[str, str], list[list[int]]] = {}  # answers to a question that were not given yet

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Return the answer to a single message, sampled at the temperature of the config (by default 1).

        Raises:
            BadInput: there are several messages, the question does not fit into the model, or an option is unsupported.
        """
        if len(input) != 1:
            raise BadInput(f"{self.model_name} takes a single message; got {len(input)}")
        async with self._one_at_a_time:
            return await anyio.to_thread.run_sync(self._answer, input[0].text, config)

    @torch.no_grad()
    def _answer(self, question: str, config: GenerateConfig) -> ModelOutput:
        model, tokenizer = self.model, self.model.tokenizer
        read, _ = question_ids(tokenizer, as_text(tokenizer, question))
        if not read or max(read) >= model.cfg.d_vocab:
            raise BadInput(f"{self.model_name} has {model.cfg.d_vocab} tokens; its tokenizer returned others, or none")
        if len(read) >= model.cfg.n_ctx:
            raise BadInput(f"{self.model_name} reads at most {model.cfg.n_ctx} tokens; the question has {len(read)}")
        refused = [option for option in UNKNOWN_OPTIONS if getattr(config, option)]
        if answers := (config.extra_body or {}).get(CHOICES):
            return self._forced(question, read, answers)
        temperature = 1.0 if config.temperature is None else config.temperature
        if refused or temperature < 0:
            option = refused[0] if refused else f"temperature {temperature:g}"
            raise BadInput(f"{self.model_name} does not support {option}; expected a temperature from 0, or a seed")
        wanted, left = config.max_tokens or MAX_TOKENS, model.cfg.n_ctx - len(read)
        ends, asked = tokenizer.all_special_ids, (question, config.model_dump_json())
        with torch.random.fork_rng(enabled=config.seed is not None):
            if config.seed is not None:
                torch.manual_seed(config.seed)
                self._drawn.pop(asked, None)
            if not self._drawn.get(asked):
                n = TOGETHER if asked in self._drawn or is_bridge(model) else 1
                warm = temperature if temperature >= COLDEST else 0.0
                self._drawn[asked] = _written(Continued(model, read, n), min(wanted, left), ends, warm)
        written = self._drawn[asked].pop()
        text = tokenizer.decode(written, skip_special_tokens=True)
        answer = text.lstrip().partition("\n")[0]  # without a chat template, an answer ends at the end of the line
        stop: StopReason = "max_tokens" if wanted <= left else "model_length"
        if {*written}.intersection(ends) or "\n" in text.lstrip():
            stop = "stop"
        output = ModelOutput.from_content(self.model_name, answer, stop_reason=stop)
        output.usage = ModelUsage(
            input_tokens=len(read), output_tokens=len(written), total_tokens=len(read) + len(written)
        )
        return output

    def _forced(self, question: str, read: list[int], answers: list[str]) -> ModelOutput:
        """Return the most likely of some answers."""
        tokenizer = self.model.tokenizer
        tokens = [answer_ids(tokenizer, question, answer) for answer in answers]
        if len(read) + max(map(len, tokens)) - 1 > self.model.cfg.n_ctx:
            raise BadInput(f"{self.model_name} reads at most {self.model.cfg.n_ctx} tokens; an answer does not fit")
        likely = log_likelihoods(self.model, read, tokens)
        return ModelOutput.from_content(self.model_name, answers[likely.index(max(likely))])


def _written(after: Continued, longest: int, ends: list[int], temperature: float) -> list[list[int]]:
    """Return what a model adds to a prompt, each time up to its first end token."""
    rows: list[list[int]] = [[] for _ in after.logits]
    logits = after.logits
    while True:
        new = sample_logits(logits[:, -1], temperature=temperature)
        for row, token in zip(rows, new.tolist(), strict=True):
            if not row or row[-1] not in ends:
                row.append(token)
        if all(len(row) == longest or row[-1] in ends for row in rows):
            return rows
        logits = after.read(new[:, None])
