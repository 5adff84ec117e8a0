"""The OpenAPI document as a page: plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>PyFlame: endpoints</title><link rel="stylesheet" href="/docs.css"></head><body>
"""


def reference(document: Mapping[str, Any]) -> str:
    """A page of every path, with the fields that it takes and gives.

    >>> "<h1>" in reference({"info": {"title": "T", "version": "1"}, "paths": {}})
    True
    """
    about = document["info"]
    schemas = document.get("components", {}).get("schemas", {})
    parts = [
        _HEAD,
        f"<h1>{escape(about['title'])} {escape(about['version'])}</h1><p>{escape(about.get('description', ''))} "
        'The same for programs: <a href="/openapi.json"><code>/openapi.json</code></a>.</p>\n',
    ]
    for path, methods in document["paths"].items():
        parts += [_operation(method, path, about, schemas) for method, about in methods.items()]
    return "".join([*parts, "</body></html>\n"])


def _operation(method: str, path: str, about: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    parts = [f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code></summary>"]
    parts.append(f"<p>{escape(about.get('description') or about.get('summary', ''))}</p>")
    parameters = {
        one["name"]: {**one["schema"], "description": f"in {one['in']}"} for one in about.get("parameters", ())
    }
    parts.append(_table("Parameters", {"properties": parameters, "required": list(parameters)}))
    parts.append(_table("Takes", _schema(about.get("requestBody", {}), schemas)))
    parts.append(_table("Gives", _schema(about.get("responses", {}).get("200", {}), schemas)))
    return "".join([*parts, "</details>\n"])


def _schema(holder: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON of a body or an answer; an empty one where it is described in words only."""
    found: Mapping[str, Any] = holder.get("content", {}).get("application/json", {}).get("schema", {})
    return schemas.get(found["$ref"].rsplit("/", 1)[-1], {}) if "$ref" in found else found


def _table(title: str, schema: Mapping[str, Any]) -> str:
    fields = schema.get("properties", {})
    if not fields:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{'required' if name in schema.get('required', ()) else ''}</td>"
        f"<td><code>{escape(_kind(field))}</code></td><td>{escape(field.get('description', ''))}</td></tr>"
        for name, field in fields.items()
    )
    return f"<h4>{title}</h4><div><table>{rows}</table></div>"


def _kind(field: Mapping[str, Any]) -> str:
    """A field's type in a few words: `integer`, `Message[]`, `string | null`"""
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " | ".join(dict.fromkeys(_kind(one) for one in field[key]))
    if "$ref" in field:
        return str(field["$ref"]).rsplit("/", 1)[-1]
    if "const" in field or "enum" in field:
        return " | ".join(repr(value) for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"{_kind(field.get('items', {}))}[]"
    return str(field.get("type", "any"))
