"""``python recompute_case.py SETTING FOLDER`` makes one update and writes its graphs to a folder,
in a separate process, because MindSpore reads the folder's name when it is imported."""

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
