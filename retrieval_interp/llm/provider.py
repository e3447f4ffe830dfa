"""Language models of TransformerLens as models for Inspect: ``--model hooked/NAME``."""

from typing import Any

import anyio
import torch
from inspect_ai.model import (
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from retrieval_interp.llm.continuing import continuing
from retrieval_interp.llm.tasks import MAX_TOKENS
from retrieval_interp.models.language import language_model
from retrieval_interp.tasks.prompted import as_text, question_ids

UNKNOWN_OPTIONS = ("top_p", "top_k", "stop_seqs", "num_choices", "frequency_penalty", "presence_penalty", "logit_bias")
COLDEST = 1e-6  # below this temperature, the most likely token is taken


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

    def max_connections(self) -> int:
        """Return 1, because there is one model."""
        return 1

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
        model, tokenizer, device = self.model, self.model.tokenizer, self.model.cfg.device
        read, _ = question_ids(tokenizer, as_text(tokenizer, question))
        if not read or max(read) >= model.cfg.d_vocab:
            raise BadInput(f"{self.model_name} has {model.cfg.d_vocab} tokens; its tokenizer returned others, or none")
        if len(read) >= model.cfg.n_ctx:
            raise BadInput(f"{self.model_name} reads at most {model.cfg.n_ctx} tokens; the question has {len(read)}")
        refused = [option for option in UNKNOWN_OPTIONS if getattr(config, option)]
        temperature = 1.0 if config.temperature is None else config.temperature
        if refused or temperature < 0:
            option = refused[0] if refused else f"temperature {temperature:g}"
            raise BadInput(f"{self.model_name} does not support {option}; expected a temperature from 0, or a seed")
        generator = None if config.seed is None else torch.Generator().manual_seed(config.seed)
        read_on = continuing(model)
        written: list[int] = []
        wanted, room = config.max_tokens or MAX_TOKENS, model.cfg.n_ctx - len(read)
        stop: StopReason = "max_tokens" if wanted <= room else "model_length"
        for _ in range(min(wanted, room)):
            new = torch.tensor([written[-1:] or read], device=device)
            logits = read_on(new)[0, -1].float().cpu()
            if temperature < COLDEST:
                following = int(logits.argmax())
            else:
                chances = (logits / temperature).softmax(dim=-1)
                following = int(torch.multinomial(chances, 1, generator=generator))
            text = tokenizer.decode([*written, following], skip_special_tokens=True)
            # Without a chat template, an answer ends at the end of the line.
            if following in tokenizer.all_special_ids or (text.strip() and "\n" in text.lstrip()):
                stop = "stop"
                break
            written.append(following)
        output = ModelOutput.from_content(
            self.model_name, tokenizer.decode(written, skip_special_tokens=True), stop_reason=stop
        )
        n_read, n_written = len(read), len(written)
        output.usage = ModelUsage(input_tokens=n_read, output_tokens=n_written, total_tokens=n_read + n_written)
        return output
