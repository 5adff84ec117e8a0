"""The HTTP server of language models: OpenAI's endpoints, Ollama's, metrics and a chat page, over one engine per model.

It needs the extra `[serve]`, and nothing else of PyFlame imports it. `serve` runs it until a signal; `create_app` gives
the ASGI application to run otherwise.

>>> from pyflame.llm.server import serve
>>> serve({"smollm2": pf.llm.load("smollm2")}, port=8000)
"""

from pyflame.llm.server.app import create_app
from pyflame.llm.server.models import Served
from pyflame.llm.server.run import serve
from pyflame.llm.server.safety import Limits, Settings

__all__ = ["Limits", "Served", "Settings", "create_app", "serve"]
