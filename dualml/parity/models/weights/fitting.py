"""Find the side whose model the weights of a file belong to, by names and shapes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError, escape_unprintable
from dualml.parity.models.partners import Tensor
from dualml.parity.models.weights.opening import list_names
from dualml.parity.models.weights.stored import FLOATS, FileTensor, WeightFiles

#: Prefixes that are tried to explain names that do not fit.
MAX_PREFIXES = 20
LETTERS = ("a", "b")


@dataclass(frozen=True)
class SideModel:
    """The tensors of a side's model, and their names in its framework's checkpoints.

    Attributes:
        label: name of the side.
        stored: name of a tensor → its names in a checkpoint: several where modules share it, none
            for what is not stored.
    """

    label: str
    tensors: Sequence[Tensor]
    stored: Mapping[str, Sequence[str]]

    def checkpoint_names(self, tensor: Tensor) -> list[str]:
        """Return the names that a tensor may have in a file: those in a checkpoint, and then its
        own in the model, if it is not one of them."""
        names = self.stored.get(tensor.name, [tensor.name])
        return list(dict.fromkeys([*names, tensor.name]))


@dataclass(frozen=True)
class WeightFit:
    """Result of matching a weights file with the model of ``side``: the tensors that fit, and those
    that do not.

    Attributes:
        found: name in the model → name in the file.
        missing: trained parameters that the file lacks, as text with their shapes.
        misshapen: tensors that have another shape in the file, as text.
        unexpected: names in the file that the model lacks.
        buffers: buffers that the file lacks; they keep the model's own values.
    """

    side: SideModel
    found: Mapping[str, str]
    missing: Sequence[str]
    misshapen: Sequence[str]
    unexpected: Sequence[str]
    buffers: Sequence[str]

    @property
    def is_complete(self) -> bool:
        """Whether the file has every trained parameter of the model in its shape."""
        return not self.missing and not self.misshapen

    @property
    def count(self) -> int:
        """Number of trained parameters and buffers that fit."""
        return len(self.found)

    def describe(self) -> str:
        """Return how many parameters fit, and the first that do not, as text."""
        total = sum(one.trained for one in self.side.tensors)
        trained = {one.name for one in self.side.tensors if one.trained}
        fit = sum(name in trained for name in self.found)
        parts = [f"{fit} of {total} parameters of {self.side.label} fit"]
        if self.missing:
            parts.append(f"missing in the file: {list_names(self.missing)}")
        if self.misshapen:
            parts.append(f"other shapes: {list_names(self.misshapen)}")
        if self.unexpected:
            parts.append(f"only in the file: {list_names(self.unexpected)}")
        return "; ".join(parts)


def fit_side(tensors: Mapping[str, FileTensor], side: SideModel) -> WeightFit:
    """Return how the tensors of a file fit the model of a side."""
    found: dict[str, str] = {}
    missing, misshapen, buffers, taken = list[str](), list[str](), list[str](), set[str]()
    for one in side.tensors:
        names = [name for name in side.checkpoint_names(one) if name in tensors]
        taken |= {*names}
        right = [name for name in names if tensors[name].shape == one.shape]
        if right:
            found[one.name] = right[0]
        elif names:
            other = tensors[names[0]].shape
            misshapen.append(f"{names[0]} {other} in the file, {one.shape} in the model")
        elif one.trained:
            missing.append(f"{one.name} {one.shape}")
        else:
            buffers.append(one.name)
    unexpected = [name for name in tensors if name not in taken]
    return WeightFit(side, found, missing, misshapen, unexpected, buffers)


def find_side(
    files: WeightFiles, sides: Sequence[SideModel], chosen: str = ""
) -> tuple[str, WeightFit]:
    """Return the letter of the side whose model the weights belong to, and how they fit it.

    Args:
        sides: the models of side ``a`` and side ``b``.
        chosen: ``a`` or ``b`` if the user names the side; empty to find it.

    Raises:
        UserError: the weights fit neither side (the message has the closest one, what does not fit,
            and the prefix that would help); they fit both equally well, and the models differ; or a
            parameter's numbers are not real.
    """
    fits = [fit_side(files.tensors, side) for side in sides]
    complete = [i for i, fit in enumerate(fits) if fit.is_complete and chosen in ("", LETTERS[i])]
    if not complete:
        candidates = [fit for i, fit in enumerate(fits) if chosen in ("", LETTERS[i])]
        raise misfit_error(files, candidates)
    fewest = min(len(fits[i].unexpected) for i in complete)
    best = [i for i in complete if len(fits[i].unexpected) == fewest]
    if len(best) == 2 and not is_same_model(*sides):
        raise UserError(
            f"{files.path} fits both sides, {sides[0].label} and {sides[1].label}; say for which "
            "it is: --weights-side a or --weights-side b"
        )
    number = best[0]
    check_kinds(files, fits[number])
    return LETTERS[number], fits[number]


def is_same_model(a: SideModel, b: SideModel) -> bool:
    """Return whether both sides have trained parameters of the same names and shapes, so that it
    does not matter into which of them the weights are loaded."""
    listed = [{(one.name, one.shape) for one in side.tensors if one.trained} for side in (a, b)]
    return listed[0] == listed[1]


def check_kinds(files: WeightFiles, fit: WeightFit) -> None:
    """Raise `UserError` if the file's numbers of trained parameters are not floating-point, such as
    those of a quantized model."""
    trained = [one.name for one in fit.side.tensors if one.trained]
    kinds = {name: files.tensors[fit.found[name]].kind for name in trained}
    if wrong := [f"{name} ({kind})" for name, kind in kinds.items() if kind not in FLOATS]:
        raise UserError(
            f"{files.path}: {len(wrong)} of {len(trained)} parameters are no real numbers: "
            f"{list_names(wrong)}; save the weights in float32, float16 or bfloat16"
        )


def misfit_error(files: WeightFiles, fits: Sequence[WeightFit]) -> UserError:
    """Return (not raise) the error for weights that fit no side, with the closest side and, if a
    changed prefix would make more tensors fit, that prefix.

    Args:
        fits: how the file fits each side in question.
    """
    best = max(fits, key=lambda fit: (len(fit.found) / max(1, len(fit.side.tensors)), fit.count))
    which = "neither side; the closest" if len(fits) > 1 else f"not {best.side.label}"
    hint = ""
    better = [
        (fit.count, prefix, fit) for own in fits for prefix, fit in try_prefixes(files, own.side)
    ]
    if better:
        count, prefix, fit = max(better, key=lambda row: (row[2].is_complete, row[0]))
        if count > best.count:
            hint = (
                f"; with --weights-prefix {prefix} {count} of {len(fit.side.tensors)} tensors of "
                f"{fit.side.label} fit"
            )
    return UserError(
        f"{files.path} ({len(files.tensors)} tensors) fits {which}"
        f"{' is ' + best.side.label if len(fits) > 1 else ''}: {best.describe()}{hint}"
    )


def try_prefixes(files: WeightFiles, side: SideModel) -> list[tuple[str, WeightFit]]:
    """Return (prefix, how the file fits then) for prefixes to remove (``OLD``) or change
    (``OLD=NEW``) in the names of a file, the most promising first, at most `MAX_PREFIXES`."""
    endings: dict[str, list[str]] = {}
    for name in files.tensors:
        endings.setdefault(name.rpartition(".")[2], []).append(name)
    votes: Counter[str] = Counter()
    for one in side.tensors:
        for name in side.checkpoint_names(one)[:1]:
            for stored in endings.get(name.rpartition(".")[2], []):
                if stored != name and files.tensors[stored].shape == one.shape:
                    votes[changed_prefix(stored, name)] += 1
    found = []
    for prefix, _ in votes.most_common(MAX_PREFIXES):
        try:
            renamed = files.rename(prefix)
        except UserError:  # two tensors would have one name
            continue
        found.append((prefix, fit_side(renamed.tensors, side)))
    return found


def changed_prefix(stored: str, name: str) -> str:
    """Return the prefix to remove from a stored name (``OLD``), or to change (``OLD=NEW``), so that
    it becomes ``name``.

    Example:
        >>> changed_prefix("model.fc.weight", "fc.weight"), changed_prefix("fc.w", "net.fc.w")
        ('model.', '=net.')
        >>> changed_prefix("bert.fc.weight", "encoder.fc.weight")
        'bert.=encoder.'
    """
    xs, ys = stored.split("."), name.split(".")
    while xs and ys and xs[-1] == ys[-1]:
        xs.pop(), ys.pop()
    old, new = ("".join(f"{part}." for part in parts) for parts in (xs, ys))
    return f"{old}={new}" if new else old


def note_values(fit: WeightFit, path: Path) -> dict[str, object]:
    """Return the values for the sentence about loaded weights in a comparison's report: file, side,
    number of tensors that fit, names and number of those that the model lacks."""
    return {
        "file": escape_unprintable(path.name),
        "side": fit.side.label,
        "n": len(fit.found),
        "extra": list_names(fit.unexpected),
        "more": len(fit.unexpected),
    }
