"""Replicas of the HTTP server under Ray Serve, each with a model and an engine of its own.

    pip install 'pyflame-rocm[serve]' 'ray[serve]'
    serve run deploy.ray_serve:app                   # http://127.0.0.1:8000/v1

Ray starts, watches and restarts the replicas, and sends each request to the less busy of two that it draws.
"""

from __future__ import annotations

from fastapi import FastAPI
from ray import serve

import pyflame as pf
from pyflame.llm.server import Served, create_app


def build() -> FastAPI:
    """Called in each replica: models and engines do not travel."""
    model = pf.llm.load("smollm2", context=1024)
    return create_app([Served("smollm2", model, pf.llm.Engine(model, rows=4))])


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 1}, max_ongoing_requests=64)
@serve.ingress(build)
class Replica:
    pass


app = Replica.bind()
