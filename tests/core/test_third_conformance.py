"""The conformance suite on a backend it does not know: correct, wrong, and minimal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from backend_package import Edit, install, path_with
from test_third_backend import MINIMAL

from dualml.common.machine import thread_variables

pytestmark = pytest.mark.whole

ROOT = Path(__file__).resolve().parents[2]


def suite(
    site: Path, *words: str, backends: Sequence[str] = ("single",)
) -> subprocess.CompletedProcess[str]:
    """Run the suite, or some of its tests, on these backends only."""
    own = {"PYTHONPATH": path_with(site), "DUALML_CONFORMANCE": ",".join(backends)}
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *words],
        cwd=ROOT,
        env={**os.environ, **thread_variables(1), **own},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def in_files(words: str) -> list[str]:
    """Return the files and options of a selection such as ``"optim layers -k tanh"``."""
    files, _, chosen = words.partition(" -k ")
    paths = [f"tests/conformance/test_{name}.py" for name in files.split()]
    return [*paths, *(["-k", chosen] if chosen else [])]


@pytest.mark.timeout(900)
def test_a_right_backend_passes_all_of_it(tmp_path: Path) -> None:
    """Tests of missing capabilities are skipped with the backend's reason."""
    done = suite(install(tmp_path), "tests/conformance", "--timeout=600")
    assert done.returncode == 0, done.stdout[-3000:]
    skipped = set(re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", done.stdout, re.M))
    assert skipped == {
        "this backend cannot train in parallel by itself",
        "this backend cannot send gradients while others are computed",
        "this backend cannot count the bytes it holds",
        "this backend cannot compute in a lower precision than float32",
        "this backend cannot train a part of a model in a lower precision than float32",
        "this backend cannot train by the methods of engines",
        "this backend cannot store a model in flat vectors that are sharded over ranks",
        "this backend cannot compute activations again in the backward pass",
        "this backend cannot drop what a segment took and take it again",
        "this backend cannot attend to keys and values block by block",
        "this backend cannot tell how much of the device's memory is given out",
        "this backend cannot carry the state of recurrent layers over batches",
        "this backend cannot put the stages of a model on several devices of one process",
        "docs/primitives.md has no column for this backend",
    }


def test_a_minimal_backend_passes_what_it_says_that_it_has(tmp_path: Path) -> None:
    done = suite(install(tmp_path, MINIMAL), *in_files("layers native -k not vit"))
    assert done.returncode == 0, done.stdout[-3000:]
    assert "this backend cannot train a part of a model" in done.stdout
    assert "this backend cannot take an update apart" in done.stdout


#: Mistake → its edit, and the tests that must notice it.
WRONG: dict[str, tuple[Edit, str]] = {
    "a flipped sign in a rule": (
        (
            "optim.py",
            "g = g + r.momentum * b if r.nesterov",
            "g = g - r.momentum * b if r.nesterov",
        ),
        "optim -k nesterov",
    ),
    "a rate that ignores its schedule": (
        ("training.py", "self.recipe.learning_rate(step)", "self.recipe.rule.lr"),
        "training -k twenty and cosine and sgd",
    ),
    "a flipped sign in a layer's backward pass": (
        ("values.py", "self.map(y, 1 - y * y)", "self.map(y, 1 + y * y)"),
        "layers -k output and sequence",
    ),
    "a bias added up over the wrong axes": (
        ("values.py", "axis=tuple(range(extra))", "axis=tuple(range(1, extra + 1))"),
        "layers -k output and sequence",
    ),
    "a sum for the mean of a loss": (
        ("network.py", "- picked).mean(0)", "- picked).sum(0)"),
        "layers -k output and position",
    ),
    "the masks of the update before": (
        ("training.py", "self.step_count + 1", "self.step_count"),
        "layers -k masks",
    ),
    "a shifted batch": (
        ("training.py", "self.recipe.x[batch]", "self.recipe.x[batch - 1]"),
        "training -k trace and softmax",
    ),
    "chunks that count alike": (
        ("training.py", "np.float32(share))]", "np.float32(0.25))]"),
        "training -k chunks",
    ),
    "stale state after a checkpoint": (
        ("optim.py", "start = state if step else", "start = state if step < 0 else"),
        "training -k checkpoint and sgd",
    ),
    "weights that are no copies": (
        ("training.py", "{name: w.copy() for name, w in self.own", "{n: w for n, w in self.own"),
        "training -k copies",
    ),
    "a look that changes something": (
        ("training.py", "*self.gradient(batch))", "self.step(batch, self.step_count + 1), {})"),
        "training -k looking",
    ),
    "a mean for a sum of ranks": (
        ("communicator.py", "return OPS[op](a, b)", "return OPS[op](a, b) / (1 + (op == 'sum'))"),
        "communicator -k 2-all_reduce-float32",
    ),
    "ranks in the wrong order": (
        (
            "communicator.py",
            "[self.ranks[r] for r in ranks]",
            "[self.ranks[r] for r in ranks[::-1]]",
        ),
        "communicator -k 3-subgroup",
    ),
    "messages that overtake one another": (
        ("communicator.py", "] = queue.Queue()", "] = queue.LifoQueue()"),
        "communicator -k 2-order_of_messages",
    ),
    "a collective that is said to be there and is not": (
        ("communicator.py", 'Implementation("composed", "', 'Implementation("native", "'),
        "communicator -k 2-broadcast-float32",
    ),
    "a gradient without its rank's share": (
        ("training.py", "np.float32(factor) * bucket", "bucket"),
        "parallel -k 2 and mean",
    ),
    "micro-batches that replace one another": (
        ("stage.py", "self.sums[name] += g", "self.sums[name] = g"),
        "split -k whole_one and gpipe",
    ),
}


#: A backend per mistake, with names that are not parts of each other.
NAMES = {mistake: f"wrong{chr(ord('a') + number)}x" for number, mistake in enumerate(WRONG)}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the failures of all wrong backends in one session, with the tests that must notice
    each."""
    folder = tmp_path_factory.mktemp("wrong")
    files, chosen = set(), []
    for mistake, (edit, words) in WRONG.items():
        install(folder, [edit], NAMES[mistake])
        file, _, expression = words.partition(" -k ")
        files.add(f"tests/conformance/test_{file}.py")
        chosen.append(f"(test_{file} and {NAMES[mistake]} and {expression})")
    asked = [*sorted(files), "-k", " or ".join(chosen), "--tb=no", "-rfE"]
    done = suite(folder / "site", *asked, backends=list(NAMES.values()))
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_backend_fails(failures: str, mistake: str) -> None:
    """A wrong backend fails a test; an error of another kind does not count."""
    assert re.search(rf"^FAILED .*{NAMES[mistake]}", failures, re.M), failures[-3000:]
