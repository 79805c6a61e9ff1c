"""Experiments that start from a pretrained BERT: its folder, its weights, and the notice about
it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.algorithms.model.pretrained import PretrainedBert, Weights
from dualml.common.errors import UserError
from dualml.common.parse import is_unicode
from dualml.common.words import LANGUAGES, all_languages, load_messages
from dualml.experiment.data import Dataset
from dualml.experiment.data.wordpiece import WordPiece, check_length
from dualml.experiment.schema import Data, Experiment


def open_pretrained(experiment: Experiment) -> PretrainedBert:
    """Open the folder of an experiment's pretrained model without reading anything large.

    Raises:
        UserError: the folder is not a BERT with its vocabulary, or does not fit ``data.length``; or
            ``data.words`` is set, which the folder determines.
    """
    folder, data = Path(experiment.pretrained), experiment.data
    if not is_unicode(str(folder)):  # the plan says where it is
        raise UserError(f"{folder}: its path is not Unicode text; rename what is not")
    if data.words != Data.model_fields["words"].default:
        raise UserError(
            f"data.words = {data.words} is for a vocabulary made of the text; pretrained brings "
            "its own: leave it out"
        )
    model = PretrainedBert.open(folder)
    pieces = WordPiece.open(folder)
    pieces.check_size(model.config.vocab_size)
    check_length(data.length)
    model.spec(data.length, 1)
    model.check_tensors()
    return model


def read_pretrained_weights(experiment: Experiment, data: Dataset) -> Weights:
    """Read the pretrained weights of an experiment for the sentence length and classes of ``data``,
    canonical parameter name → array; empty without a pretrained model. Raise `UserError` if they
    cannot be used."""
    if not experiment.pretrained:
        return {}
    return open_pretrained(experiment).weights(data.train_x.shape[1], len(data.classes))


def pretrained_notice(
    experiment: Experiment, data: Dataset, initial: Mapping[str, Any] | None = None
) -> dict[str, str] | None:
    """Return the notice of console and report about the data and the origin of the weights, by
    language; None if there is nothing to say.

    Args:
        initial: the plan's record of the file with the initial weights.
    """
    notes = [data.notice] if data.notice else []
    if data.cut:
        total = sum(len(y) for y in (data.train_y, data.validation_y, data.test_y) if y is not None)
        length = data.train_x.shape[1]
        notes.append(
            all_languages("notice.cut", cut=data.cut, lines=total, name=data.name, length=length)
        )
    if experiment.pretrained:
        model = open_pretrained(experiment)
        name, classes = model.folder.name, len(data.classes)
        if rate := model.config.attention_probs_dropout_prob:
            notes.append(all_languages("notice.no_attention_dropout", rate=rate, folder=name))
        if not model.has_head(classes):
            notes.append(all_languages("notice.head_drawn", folder=name, classes=classes))
    if initial:
        name, sha256 = Path(initial["path"]).name, initial["sha256"][:12]
        notes.append(all_languages("notice.initial", file=name, sha256=sha256))
    joined = {
        lang: load_messages(lang)["notice.and"].join(note[lang] for note in notes)
        for lang in LANGUAGES
    }
    return joined if notes else None
