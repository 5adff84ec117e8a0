"""Python programs: `os.environ["A"] = "b"`, `setdefault`, `update`, `os.putenv`, before or after `import torch`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LIBRARIES = ("torch", "tensorflow", "jax", "cupy", "vllm")  # those that start HIP when they are imported, or soon


def program(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """Name, value, line, and the library whose import comes before."""
    tree = ast.parse(text)
    imports = sorted(_imports(tree))
    found = sorted((f for node in ast.walk(tree) for f in _assigned(node)), key=lambda f: f[2])
    for name, value, line in found:
        before = [library for number, library in imports if number < line]
        yield name, value, line, before[0] if before else ""


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Those of the module itself: a function's may never run."""
    if not isinstance(tree, ast.Module):
        return
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if name.partition(".")[0] in _LIBRARIES:
                yield node.lineno, name.partition(".")[0]
        if isinstance(node, ast.If | ast.Try | ast.With):
            waiting += [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)]


def _assigned(node: ast.AST) -> Iterator[tuple[str, str | None, int]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _is_environ(target.value):
                yield from _named(target.slice, node.value, node.lineno)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner, method = node.func.value, node.func.attr
        if (method == "setdefault" and _is_environ(owner)) or (method == "putenv" and _called(owner) == "os"):
            if len(node.args) == 2:
                yield from _named(node.args[0], node.args[1], node.lineno)
        elif method == "update" and _is_environ(owner):
            yield from _updated(node)


def _updated(call: ast.Call) -> Iterator[tuple[str, str | None, int]]:
    for argument in call.args:
        if isinstance(argument, ast.Dict):
            for key, value in zip(argument.keys, argument.values, strict=True):
                if key is not None:
                    yield from _named(key, value, value.lineno)
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, _text(keyword.value), keyword.value.lineno


def _named(key: ast.expr, value: ast.expr, line: int) -> Iterator[tuple[str, str | None, int]]:
    name = _text(key)
    if name is not None:
        yield name, _text(value), line


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _called(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_environ(node: ast.expr) -> bool:
    return _called(node) == "environ" or (isinstance(node, ast.Attribute) and node.attr == "environ")
