"""``python recompute_case.py SETTING FOLDER``: one update, with the graphs of it in a folder; a
process of its own, as MindSpore asks for the folder when it is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = Path(sys.argv[2])
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ |= {"MS_DEV_SAVE_GRAPHS": "2", "MS_DEV_SAVE_GRAPHS_PATH": str(FOLDER)}
os.environ["DUALML_MINDSPORE_GRAPHS"] = "off"

from conformance.recompute import BATCH, CHUNK, recipe  # noqa: E402

from dualml_ms.backend import MindSporeBackend  # noqa: E402

training = MindSporeBackend("cpu", 1).training(recipe("text_classifier", sys.argv[1]))
training.step(BATCH[:CHUNK], 1)
