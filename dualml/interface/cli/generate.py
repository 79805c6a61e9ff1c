"""``dualml generate``: continue a text with a trained language model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import ARM, RUN, OutputOptions
from dualml.interface.cli.output import complain, print_json, print_text

Option = typer.Option


@dataclass(frozen=True)
class SamplingOptions:
    """The prompt, and the random choice of what follows it."""

    prompt: Annotated[str, Option("--prompt")] = ""
    length: Annotated[int, Option("--length")] = 200
    temperature: Annotated[float, Option("--temperature")] = 1.0
    seed: Annotated[int, Option("--seed", min=0)] = 0


@with_option_groups
def generate(
    folder: Annotated[Path, RUN],
    arm: Annotated[str | None, ARM] = None,
    backend: Annotated[str | None, Option("--backend")] = None,
    *,
    sampling: SamplingOptions,
    output: OutputOptions,
) -> None:
    """Continue a text with a trained language model."""
    from dualml.common.words import Messages
    from dualml.runner.session import generate as session

    made = session.generate(folder, arm=arm, backend=backend, **vars(sampling))
    if output.json:
        print_json(made.describe(), "generate")
        return
    words = Messages(output.lang)
    if made.updates is not None:
        complain(words.plural("generate.weights", made.updates, made=made))
    if made.unknown:
        complain(words("generate.unknown", words=words.join(made.unknown)))
    print_text(made.text)
