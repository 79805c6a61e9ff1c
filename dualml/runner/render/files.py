"""The rendered files, which are written only if all of them pass the checks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.launch.connection import TOKEN
from dualml.runner.render.compose import compose_document
from dualml.runner.render.kinds import KINDS
from dualml.runner.render.kubernetes import (
    Object,
    files_pod,
    kustomization,
    script_key,
    volume_claims,
)
from dualml.runner.render.references import compose_problems, kubernetes_problems, token_problems
from dualml.runner.render.request import RenderRequest


class Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """YAML dumper that indents lists, writes no aliases, and quotes what could be taken for a
    number."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent a list below its key, even where ``indentless`` asks for none."""
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that repeated objects are written in full."""
        return True


def text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent a string as a YAML node, in double quotes where versions of YAML disagree about its
    type."""
    # Versions of YAML disagree about 1e3, 0o7 and y.
    style = '"' if re.match(r"[-+]?[.\d]|.?$", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, text_node)


def dump_yaml(*documents: Object) -> str:
    """Return the objects as YAML text, with keys in the order in which they were set; several ones
    as documents separated by ``---``."""
    text: str = yaml.dump_all(
        documents,
        Dumper=Dumper,
        sort_keys=False,
        width=100,
        allow_unicode=True,
        explicit_start=len(documents) > 1,
    )
    return text


def compose_files(request: RenderRequest) -> dict[str, str]:
    """Return the files for Docker Compose, name → text, with the token in ``.env`` if the nodes
    need one; `UserError` if a check fails."""
    document = compose_document(request)
    files = {"compose.yaml": dump_yaml(document)}
    check_sound([*compose_problems(document, request.arms)], files, request)
    if request.has_token:
        files[".env"] = f"{TOKEN}={request.token}\n"
    return files | extra_files(request, "compose")


def kubernetes_files(request: RenderRequest, kind: str) -> dict[str, str]:
    """Return the files for Kubernetes, name → text; ``kind`` is one of
    `dualml.runner.render.kinds.KINDS`. The token, if the nodes need one, is in ``token.env``.
    `UserError` if a check fails."""
    objects, volumes = KINDS[kind].objects(request), volume_claims(request, KINDS[kind].shared)
    first, rest = objects[: KINDS[kind].applied_first], objects[KINDS[kind].applied_first :]
    before = {"runtime.yaml": dump_yaml(*first)} if first else {}
    files, together = files_pod(request), kustomization(request, *before)
    written = {
        "kustomization.yaml": dump_yaml(together),
        "claims.yaml": dump_yaml(*volumes),
        **before,
        "job.yaml": dump_yaml(*rest),
        "files.yaml": dump_yaml(files),
    }
    problems = kubernetes_problems([*volumes, *objects, files], together, request.arms)
    check_sound([*problems], written, request)
    if request.has_token:
        written["token.env"] = f"{TOKEN}={request.token}\n"
    step = Messages(request.lang)("render.kubernetes.before") if first else ""
    return written | extra_files(request, kind, resource=KINDS[kind].resource, before=step)


def check_sound(problems: Sequence[str], files: Mapping[str, str], request: RenderRequest) -> None:
    """Raise `UserError` for the first of ``problems``, or if the token is in one of ``files``
    (name → text)."""
    for problem in [*problems, *token_problems(request.token, "".join(files.values()))]:
        raise UserError(f"nothing is written: {problem}")


def extra_files(request: RenderRequest, kind: str, **values: Any) -> dict[str, str]:
    """Return further files, name → text: the instructions (README.md), and the experiment's file
    and scripts if there are any. ``kind`` is ``compose`` or a kind of Kubernetes job; ``values``
    fill the instructions."""
    words = Messages(request.lang)
    shared: dict[str, Any] = {
        "name": request.name,
        "image": request.image,
        "out": request.run_folder,
    }
    page = "compose" if kind == "compose" else "kubernetes"
    about = f"render.{page}.command" if request.is_command else f"render.{page}.about"
    parts = [words(about, **shared, **values)]
    if request.rate:
        parts.append(words(f"render.{page}.rate", rate=f"{request.rate:,}"))
    if request.has_token:
        parts.append(words(f"render.{page}.token"))
    if request.seconds and not request.is_command:
        parts.append(words(f"render.{page}.time", seconds=f"{request.seconds:,}"))
    if page == "kubernetes":
        parts.append(
            words(f"render.kind.{kind}_command" if request.is_command else f"render.kind.{kind}")
        )
        if request.nodes > 1:
            parts.append(words("render.kubernetes.many"))
    files = {"README.md": "\n".join(part.strip("\n") + "\n" for part in parts)}
    if request.lab is not None:
        files["lab.toml"] = request.lab.decode("utf-8")
    for path, content in request.scripts.items():
        files[script_key(path)] = content.decode("utf-8")
    return files


def check_empty_folder(folder: Path) -> None:
    """Raise `UserError` for a folder that is not empty or cannot be read, or a file; a path at
    which nothing exists is accepted."""
    try:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--render {folder} is a file; name a folder")
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(f"--render {folder} is not empty; name another folder")
    except OSError as error:
        raise UserError(f"--render {folder}: {error.strerror}") from None


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files, name → text, into a new or empty folder; those with the token (``.env``) are
    readable by the user only.

    Raises:
        UserError: the folder cannot be written to, or has a file of such a name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            mode = 0o600 if name.endswith(".env") else 0o644
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UserError(f"--render {folder}: {error.strerror}") from None
