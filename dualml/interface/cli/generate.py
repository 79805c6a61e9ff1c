"""``dualml generate``: continue a text with a trained language model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualml.interface.cli.options import ARM, RUN, AsJson, Lang
from dualml.interface.cli.output import complain, print_json, print_text

Option = typer.Option


def generate(
    folder: Annotated[Path, RUN],
    arm: Annotated[str | None, ARM] = None,
    backend: Annotated[str | None, Option("--backend")] = None,
    prompt: Annotated[str, Option("--prompt")] = "",
    length: Annotated[int, Option("--length")] = 200,
    temperature: Annotated[float, Option("--temperature")] = 1.0,
    seed: Annotated[int, Option("--seed", min=0)] = 0,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Continue a text with a trained language model."""
    from dualml.common.words import Messages
    from dualml.runner.session import generate as session

    made = session.generate(
        folder,
        arm=arm,
        backend=backend,
        prompt=prompt,
        length=length,
        temperature=temperature,
        seed=seed,
    )
    if json:
        print_json(made.describe(), "generate")
        return
    words = Messages(lang)
    if made.updates is not None:
        complain(words.plural("generate.weights", made.updates, made=made))
    if made.unknown:
        complain(words("generate.unknown", words=words.join(made.unknown)))
    print_text(made.text)
