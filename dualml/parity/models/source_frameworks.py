"""Find the framework of a model from its source, without importing anything."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dualml.common.files import MAX_TEXT_BYTES, read_bytes

#: Package → the framework that its models are written in.
PACKAGES = {
    "torch": "torch",
    "torchvision": "torch",
    "torchaudio": "torch",
    "timm": "torch",
    "transformers": "torch",
    "diffusers": "torch",
    "transformer_lens": "torch",
    "x_transformers": "torch",
    "litgpt": "torch",
    "lightning": "torch",
    "pytorch_lightning": "torch",
    "mindspore": "mindspore",
    "mindcv": "mindspore",
    "mindformers": "mindspore",
    "mindnlp": "mindspore",
    "mindone": "mindspore",
    "jax": "jax",
    "flax": "jax",
    "equinox": "jax",
    "haiku": "jax",
}
#: Limits of a walk along imports: its depth, and the number of files that are read.
MAX_DEPTH, MAX_FILES = 4, 60


def find_framework(thing: Any, spec: Mapping[str, Any]) -> str | None:
    """Return the name of the framework that a model is written in; None if its source does not
    tell, or names several.

    The base classes of a class decide, then the imports of its file, then those of the files that
    it imports. A file that imports several frameworks is decided by what the class or function
    uses.

    Args:
        thing: the class, the function, or the text that names it.
        spec: its import spec, see `dualml.parity.models.model_ref.to_import_spec`.
    """
    if inspect.isclass(thing):
        roots = {base.__module__.partition(".")[0] for base in thing.__mro__}
        if len(found := {PACKAGES[root] for root in roots & PACKAGES.keys()}) == 1:
            return found.pop()
    root = spec["module"].partition(".")[0]
    if spec["file"] is None and root in PACKAGES:
        return PACKAGES[root]
    path = Path(spec["file"]) if spec["file"] else find_module(spec["module"])
    if path is None or (tree := parse_source(path)) is None:
        return None
    found = imported_frameworks(tree)
    if len(found) > 1:
        found = used_frameworks(tree, spec["name"].partition(".")[0])
    elif not found:
        found = walk_imports(path, tree)
    return found.pop() if len(found) == 1 else None


def find_module(module: str) -> Path | None:
    """Return the file of a module by its dotted name, from installed packages or the module search
    path, without importing it; None if it is not found."""
    if (found := find_source(module, None)) is not None:
        return found
    places = (find_in_folder(Path(place or "."), module.split(".")) for place in sys.path)
    return next(filter(None, places), None)


def parse_source(path: Path) -> ast.Module | None:
    """Return the syntax tree of a Python file; None if it cannot be read or parsed."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
        return ast.parse(read_bytes(path, MAX_TEXT_BYTES))
    return None


def iter_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (local name, dotted module) of everything that a file imports, anywhere in it; a
    relative module keeps its leading dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.asname or one.name.partition(".")[0], one.name
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for one in node.names:
                inner = f"{module}{one.name}" if not node.module else module
                yield one.asname or one.name, inner


def imported_frameworks(tree: ast.AST) -> set[str]:
    """Return the frameworks whose packages a file imports, anywhere in it."""
    roots = {module.partition(".")[0] for _, module in iter_imports(tree)}
    return {PACKAGES[root] for root in roots & PACKAGES.keys()}


def used_frameworks(tree: ast.Module, name: str) -> set[str]:
    """Return the frameworks whose imported names a class uses in its bases, or a function anywhere
    in it; other definitions of the file that they name count as well.

    Args:
        name: name of a class or function at the top level of the file.
    """
    roots = {local: module.partition(".")[0] for local, module in iter_imports(tree)}
    known = {local: PACKAGES[root] for local, root in roots.items() if root in PACKAGES}
    definitions = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    found, seen, waiting = set[str](), set[str](), [name]
    while waiting:
        if (current := waiting.pop()) in seen:
            continue
        seen.add(current)
        node = definitions.get(current)
        if node is None:
            continue
        parts: Iterable[ast.AST] = node.bases if isinstance(node, ast.ClassDef) else [node]
        names = [x.id for part in parts for x in ast.walk(part) if isinstance(x, ast.Name)]
        found |= {known[x] for x in names if x in known}
        waiting += [x for x in names if x in definitions]
    return found


def walk_imports(path: Path, tree: ast.Module) -> set[str]:
    """Return the frameworks that the files imported by a file import, directly or in up to
    `MAX_DEPTH` steps: those of the nearest level of files that imports any. At most `MAX_FILES`
    files are read.

    Args:
        tree: the syntax tree of the file ``path``.
    """
    level, seen = [(path, tree)], {path}
    for _ in range(MAX_DEPTH):
        following: list[tuple[Path, ast.Module]] = []
        for own, parsed in level:
            for _, module in iter_imports(parsed):
                source = find_source(module, own)
                if source is None or source in seen or len(seen) >= MAX_FILES:
                    continue
                seen.add(source)
                if (inner := parse_source(source)) is not None:
                    following.append((source, inner))
        if found := set[str]().union(*(imported_frameworks(inner) for _, inner in following)):
            return found
        level = following
    return set()


def find_source(module: str, importer: Path | None) -> Path | None:
    """Return the Python file of a module, without importing its packages; None if there is none, or
    if it belongs to the standard library, or to an installed package other than the importer's.

    Args:
        module: dotted name, with leading dots if it is relative.
        importer: the file that imports it, whose folder is searched first; None: nothing imports
            it, and installed packages count.
    """
    dots = len(module) - len(module.lstrip("."))
    parts = [part for part in module.lstrip(".").split(".") if part]
    if dots and importer is not None:
        return find_in_folder(importer.parents[min(dots, len(importer.parents)) - 1], parts)
    if not parts or parts[0] in sys.stdlib_module_names:
        return None
    if importer is not None and (found := find_in_folder(importer.parent, parts)) is not None:
        return found
    for folder in root_folders(parts[0]):
        found = find_in_folder(folder, parts[1:])
        # Of installed packages only their own files: what they import says nothing about a model.
        if found is not None and (importer is None or not is_installed(found)):
            return found
        if found is not None and importer is not None and folder in importer.parents:
            return found
    return None


def root_folders(root: str) -> list[Path]:
    """Return the folders of a top-level package, without importing it; empty for a module in a
    single file and for a package that is not found."""
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(root)
        if spec is not None and spec.submodule_search_locations:
            return [Path(place).resolve() for place in spec.submodule_search_locations]
    return []


def is_installed(path: Path) -> bool:
    """Return whether a file lies in a folder of installed packages (``site-packages`` or
    ``dist-packages``)."""
    return bool({"site-packages", "dist-packages"} & {*path.parts})


def find_in_folder(folder: Path, parts: list[str]) -> Path | None:
    """Return the file of a module below a folder: ``a/b.py`` or else ``a/b/__init__.py`` for the
    parts ``a``, ``b`` of its name; the folder's own ``__init__.py`` without parts. None if there is
    none."""
    place = folder.joinpath(*parts)
    for path in ([place.with_suffix(".py")] if parts else []) + [place / "__init__.py"]:
        if path.is_file():
            return path.resolve()
    return None
