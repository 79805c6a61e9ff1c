"""BERT's WordPiece tokens, from the ``vocab.txt`` of a Hugging Face folder.

Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", sec. 3, and
Wu et al. 2016, "Google's Neural Machine Translation System", sec. 4.1.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from dualml.algorithms.model.layers import PADDING
from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes
from dualml.common.strict_model import describe_validation_error

VOCABULARY, SETTINGS = "vocab.txt", "tokenizer_config.json"
PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
#: Minimum number of tokens of a sample: `START`, one token of a sentence, `END`.
MIN_LENGTH = 3
INSTALL = "pip install 'dualml[bert]'"


class TokenizerSettings(BaseModel):
    """Text normalisation settings of ``tokenizer_config.json``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    do_lower_case: bool = True
    tokenize_chinese_chars: bool = True
    strip_accents: bool | None = None


@dataclass(frozen=True)
class WordPiece:
    """A WordPiece vocabulary with its normalisation settings.

    Attributes:
        words: words by token, the lines of the file.
        sha256: digest of the file and the settings; equal digests mean equal tokens.
    """

    folder: Path
    words: tuple[str, ...]
    settings: TokenizerSettings
    sha256: str

    @classmethod
    def open(cls, folder: Path) -> WordPiece:
        """Read the vocabulary and the settings of a folder.

        Raises:
            UserError: the vocabulary is missing or damaged, lacks a special token, or its padding
                is not token 0.
        """
        path = folder / VOCABULARY
        try:
            content = read_bytes(path, MAX_TEXT_BYTES)
            lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
        except FileNotFoundError:
            raise UserError(
                f"pretrained: {folder} has no {VOCABULARY}; put the one there that the model was "
                "trained with, a token a line"
            ) from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8: byte {error.start:,}") from None
        words = tuple(lines[:-1] if lines[-1] == "" else lines)
        if missing := [word for word in (PAD, UNKNOWN, START, END) if word not in words]:
            raise UserError(
                f"{path}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing "
                f"among its {len(words):,} lines; a vocabulary of BERT is expected"
            )
        made = cls(folder, words, settings := read_settings(folder), digest(content, settings))
        if (at := made.token_ids[PAD]) != PADDING:
            raise UserError(
                f"{path}: {PAD} is token {at} (line {at + 1}), and padding is token {PADDING} "
                f"here: change places with {words[PADDING]!r}, and the same rows of the model's "
                "word embeddings"
            )
        return made

    @functools.cached_property
    def token_ids(self) -> dict[str, int]:
        """Word → token; for a duplicate word the last token, as transformers reads it."""
        return {word: token for token, word in enumerate(self.words)}

    def check_size(self, rows: int) -> None:
        """Raise `UserError` unless ``rows``, the rows of the model's word embedding, is the number
        of tokens."""
        if rows != len(self.words):
            raise UserError(
                f"{self.folder / VOCABULARY} has {len(self.words):,} tokens, and the model's word "
                f"embedding {rows:,} rows (vocab_size): they are of different models"
            )

    def encode_sentences(
        self, name: str, lines: Sequence[Sequence[str]], length: int
    ) -> tuple[NDArray[np.int32], int]:
        """Encode sentences as tokens (N, length): `START`, the sentence, `END`, padding; also
        return how many were truncated.

        Words are joined with spaces. BERT's tokenizer separates Chinese letters itself, so spaces
        between them do not matter.

        Args:
            name: name of the text, for error messages.

        Raises:
            UserError: a sentence has no token (the text names it), ``length`` is too small for one,
                or the package tokenizers is missing.
        """
        check_length(length)
        tokenizer, cut = self.make_tokenizer(), 0
        rows = np.full((len(lines), length), PADDING, np.int32)
        start, end = self.token_ids[START], self.token_ids[END]
        for at, line in enumerate(lines):
            tokens = tokenizer.encode(" ".join(line)).ids
            if not tokens:
                raise UserError(
                    f"{name}, sentence {at + 1:,} ({' '.join(line)[:30]!r}) has no token: all of "
                    "it is white space or control characters; leave it out"
                )
            cut += len(tokens) > length - 2
            tokens = [start, *tokens[: length - 2], end]
            rows[at, : len(tokens)] = tokens
        return rows, cut

    def make_tokenizer(self) -> Any:
        """Make the tokenizer without special tokens: ``[SEP]`` in a text is three words, not an end
        token. Raise `UserError` if the package tokenizers is missing."""
        try:
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
        except ImportError:
            raise UserError(f"pretrained needs the package tokenizers; {INSTALL}") from None
        settings = self.settings
        made = Tokenizer(models.WordPiece(self.token_ids, unk_token=UNKNOWN))
        made.normalizer = normalizers.BertNormalizer(
            handle_chinese_chars=settings.tokenize_chinese_chars,
            strip_accents=settings.strip_accents,
            lowercase=settings.do_lower_case,
        )
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return made


def check_length(length: int) -> None:
    """Raise `UserError` if ``length``, the tokens of a sample, leaves no room for a token of a
    sentence."""
    if length < MIN_LENGTH:
        raise UserError(
            f"data.length = {length}: {START}, a token and {END} need {MIN_LENGTH}; raise it"
        )


def digest(content: bytes, settings: TokenizerSettings) -> str:
    """Return the SHA-256 of the vocabulary file's content and the settings."""
    return hashlib.sha256(content + settings.model_dump_json().encode()).hexdigest()


def read_settings(folder: Path) -> TokenizerSettings:
    """Return the tokenizer settings of a folder, BERT's defaults if it has none; raise `UserError`
    if they cannot be read or are invalid."""
    path = folder / SETTINGS
    try:
        # Not by `read_json`: a model's largest length is often a number beyond 64 bits.
        return TokenizerSettings.model_validate_json(read_bytes(path, MAX_TEXT_BYTES))
    except FileNotFoundError:
        return TokenizerSettings()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        raise UserError(f"{path}: {describe_validation_error(error, TokenizerSettings)}") from None
