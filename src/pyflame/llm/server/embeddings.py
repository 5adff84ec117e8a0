"""POST /v1/embeddings: vectors of texts, from an encoder."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from pyflame.core.errors import ArgumentError
from pyflame.llm.generate import Model, Prompt
from pyflame.llm.server.models import Models
from pyflame.llm.server.openai_completions import prompts_of
from pyflame.llm.server.openai_schema import Embedding, EmbeddingRequest, Embeddings, EmbeddingUsage

_one_at_a_time = threading.Lock()  # a batch takes memory by its longest text


async def embed(models: Models, name: str, texts: Sequence[Prompt]) -> tuple[npt.NDArray[np.float32], int]:
    """The vectors, and how many tokens were read."""
    if not 1 <= len(texts) <= models.limits.inputs:
        raise ArgumentError(f"[serve] expected 1 to {models.limits.inputs} texts but got {len(texts)}")
    return await run_in_threadpool(_embed, models[name].model, texts)


def _embed(model: Model, texts: Sequence[Prompt]) -> tuple[npt.NDArray[np.float32], int]:
    tokens = [model.encode(t) for t in texts]
    with _one_at_a_time:
        return model.embed(tokens).numpy().astype(np.float32), sum(map(len, tokens))


def router(models: Models) -> APIRouter:
    made = APIRouter(prefix="/v1", tags=["OpenAI"])

    @made.post("/embeddings", response_model=Embeddings)
    async def create_embeddings(body: EmbeddingRequest) -> Embeddings:
        """Vectors of length 1, of one text or several."""
        vectors, tokens = await embed(models, body.model, prompts_of(body.input))
        if body.dimensions not in (None, vectors.shape[1]):
            raise ArgumentError(f"[serve] expected dimensions of {vectors.shape[1]} but got {body.dimensions}")
        packed = body.encoding_format == "base64"
        rows = [base64.b64encode(v.tobytes()).decode() if packed else v.tolist() for v in vectors]
        data = [Embedding(index=n, embedding=row) for n, row in enumerate(rows)]
        return Embeddings(data=data, model=body.model, usage=EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens))

    return made
