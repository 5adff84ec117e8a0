"""What Ollama's endpoints take. Unknown fields and options are ignored, as Ollama does."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pyflame.llm.server.openai_schema import JsonObject, Tool


class Loose(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class Options(Loose):
    """Ollama's names for settings of sampling; its defaults are its own."""

    num_predict: int | None = None  # below 0: as many as there is room for
    temperature: Annotated[float, Field(ge=0.0)] = 0.8
    top_k: Annotated[int, Field(ge=0)] = 40
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    typical_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    repeat_penalty: Annotated[float, Field(gt=0.0)] = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None


class OllamaFunctionCall(Loose):
    name: str
    arguments: JsonObject = {}


class OllamaToolCall(Loose):
    function: OllamaFunctionCall


class OllamaMessage(Loose):
    role: str
    content: str | None = None
    images: list[Any] | None = None
    tool_calls: list[OllamaToolCall] | None = None
    tool_name: str | None = None


class Writing(Loose):
    model: str
    stream: bool = True
    format: str | JsonObject | None = None
    options: Options | None = None
    keep_alive: Any = None


class OllamaChat(Writing):
    messages: list[OllamaMessage] = []
    tools: list[Tool] | None = None


class OllamaGenerate(Writing):
    prompt: str = ""
    system: str | None = None
    raw: bool = False
    suffix: str | None = None
    images: list[Any] | None = None


class OllamaEmbed(Loose):
    model: str
    input: str | list[str]


class OllamaShow(Loose):
    model: str | None = None
    name: str | None = None  # older clients


class OllamaError(BaseModel):
    error: str
