"""POST /v1/tokenize and /v1/detokenize (also without /v1, where vLLM has them)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from pyflame.core.errors import ArgumentError
from pyflame.llm.generate import Model
from pyflame.llm.server.models import Models
from pyflame.llm.server.openai_schema import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from pyflame.llm.server.options import messages_of


def router(models: Models) -> APIRouter:
    made = APIRouter(tags=["tokens"])

    async def tokenize(body: TokenizeRequest) -> Tokenized:
        """The tokens of a prompt, or of a chat as the model's template writes it."""
        model = models[body.model].model
        tokens = await run_in_threadpool(_tokens, model, body)
        return Tokenized(tokens=tokens, count=len(tokens), max_model_len=model.context)

    async def detokenize(body: DetokenizeRequest) -> Detokenized:
        """The text of tokens, with that of special ones unless they are to be left out."""
        tokenizer = models[body.model].model.tokenizer
        return Detokenized(prompt=tokenizer.decode(body.tokens, special=not body.skip_special_tokens))

    for prefix in ("/v1", ""):
        made.post(f"{prefix}/tokenize", response_model=Tokenized, include_in_schema=bool(prefix))(tokenize)
        made.post(f"{prefix}/detokenize", response_model=Detokenized, include_in_schema=bool(prefix))(detokenize)
    return made


def _tokens(model: Model, body: TokenizeRequest) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise ArgumentError("[serve] expected either a prompt or messages")
    if body.messages is not None:
        return model.chat_tokens(messages_of(body.messages))
    found: list[int] = model.tokenizer.encode(body.prompt, special=body.add_special_tokens)
    return found
