"""`gpt` and `gpt_llama` against transformers' GPT-2 and LLaMA: logits and all gradients."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.algorithms.model import model
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import Unsupported

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
WORDS, LENGTH, WIDTH, BLOCKS, HEADS, INNER = 29, 11, 24, 2, 4, 40
SIZES = {"width": WIDTH, "blocks": BLOCKS, "heads": HEADS, "inner": INNER}
GROUPS = 2  # LLaMA's heads with keys of their own
ENTRIES = WIDTH // HEADS
#: Relative distance of a tensor caused by rounding; transformers' LLaMA computes norms and angles
#: in float32.
ROUNDING = {"gpt": {"numpy": 1e-12}, "gpt_llama": {"numpy": 3e-6}}
SINGLE = 1e-5  # measured: 3.1e-6
Arrays = dict[str, np.ndarray]


def of_gpt(theirs: Mapping[str, np.ndarray]) -> Arrays:
    """Return GPT-2's weights or gradients by our names: its matrices are transposed, and its
    queries, keys and values each hold all heads, while ours are grouped by head."""

    def heads(x: np.ndarray) -> np.ndarray:
        parts = x.reshape(3, HEADS, ENTRIES, *x.shape[1:])
        return parts.swapaxes(0, 1).reshape(x.shape)

    own = {"embedding.weight": theirs["wte.weight"], "position.weight": theirs["wpe.weight"]}
    for leaf in ("weight", "bias"):
        own[f"norm.{leaf}"] = theirs[f"ln_f.{leaf}"]
        for i in range(BLOCKS):
            block, n = f"h.{i}", i + 1
            own[f"attention_norm{n}.{leaf}"] = theirs[f"{block}.ln_1.{leaf}"]
            own[f"mlp_norm{n}.{leaf}"] = theirs[f"{block}.ln_2.{leaf}"]
            own[f"qkv{n}.{leaf}"] = heads(theirs[f"{block}.attn.c_attn.{leaf}"].T)
            own[f"out{n}.{leaf}"] = theirs[f"{block}.attn.c_proj.{leaf}"].T
            own[f"up{n}.{leaf}"] = theirs[f"{block}.mlp.c_fc.{leaf}"].T
            own[f"down{n}.{leaf}"] = theirs[f"{block}.mlp.c_proj.{leaf}"].T
    return own


def of_llama(theirs: Mapping[str, np.ndarray]) -> Arrays:
    """Return LLaMA's weights or gradients by our names; ours keep queries, keys and values of a
    group together, and both inputs of SwiGLU."""

    def groups(block: str) -> np.ndarray:
        q, k, v = (theirs[f"{block}.self_attn.{part}_proj.weight"] for part in "qkv")
        parts = [x.reshape(GROUPS, -1, ENTRIES, WIDTH) for x in (q, k, v)]
        return np.concatenate(parts, 1).reshape(-1, WIDTH)

    own = {
        "embedding.weight": theirs["embed_tokens.weight"],
        "norm.weight": theirs["norm.weight"],
        "head.weight": theirs["lm_head.weight"],
    }
    for i in range(BLOCKS):
        block, n = f"layers.{i}", i + 1
        gates = [theirs[f"{block}.mlp.{part}_proj.weight"] for part in ("gate", "up")]
        own |= {
            f"attention_norm{n}.weight": theirs[f"{block}.input_layernorm.weight"],
            f"mlp_norm{n}.weight": theirs[f"{block}.post_attention_layernorm.weight"],
            f"qkv{n}.weight": groups(block),
            f"out{n}.weight": theirs[f"{block}.self_attn.o_proj.weight"],
            f"up{n}.weight": np.concatenate(gates),
            f"down{n}.weight": theirs[f"{block}.mlp.down_proj.weight"],
        }
    return own


def make_models(name: str) -> tuple[Any, ModelSpec]:
    """Return the transformers model and our specification of the same size."""
    if name == "gpt":
        config = transformers.GPT2Config(
            vocab_size=WORDS,
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=BLOCKS,
            n_head=HEADS,
            n_inner=INNER,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
        return transformers.GPT2LMHeadModel(config), model(name, WORDS, LENGTH, sizes=SIZES)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        max_position_embeddings=LENGTH,
        hidden_size=WIDTH,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        intermediate_size=INNER,
        tie_word_embeddings=False,
    )
    sizes = {**SIZES, "kv_heads": GROUPS}
    return transformers.LlamaForCausalLM(config), model(name, WORDS, LENGTH, sizes=sizes)


OURS = {"gpt": of_gpt, "gpt_llama": of_llama}


@pytest.fixture(scope="module", params=list(OURS))
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Arrays]:
    """Return a folder with our model and weights, and the float64 results of the transformers
    model."""
    from dualml_torch.experiment.data import import_torchvision

    with contextlib.suppress(Unsupported):  # transformers imports it; it may be of another build
        import_torchvision()
    folder, ours = tmp_path_factory.mktemp(request.param), OURS[request.param]
    torch.manual_seed(0)
    theirs, spec = make_models(request.param)
    with torch.no_grad():  # so that no bias is zero, and no norm the identity
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    theirs = theirs.double().eval()

    def collect_named(what: str) -> Arrays:
        found = {}
        for name, p in theirs.named_parameters():
            short = name.removeprefix("transformer.").removeprefix("model.")
            found[short] = (p if what == "weight" else p.grad).detach().numpy()
        return ours(found)

    weights = {name: w.astype(np.float32) for name, w in collect_named("weight").items()}
    with torch.no_grad():  # both of the same numbers
        for parameter in theirs.parameters():
            parameter.copy_(parameter.float().double())
    text = np.random.default_rng(1).integers(0, WORDS, (5, LENGTH + 1))
    x, y = text[:, :-1].copy(), text[:, 1:].copy()
    assert {name: w.shape for name, w in weights.items()} == dict(spec.parameters())
    np.savez(folder / "given.npz", x=x, y=y, **weights)
    (folder / "model.json").write_text(json.dumps(spec.describe()))
    logits = theirs(input_ids=torch.from_numpy(x)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(y).flatten())
    loss.backward()
    exact = {"logits": logits.detach().numpy(), "loss": loss.detach().numpy()}
    gradients = {f"gradient/{name}": g for name, g in collect_named("gradient").items()}
    return request.param, folder, exact | gradients


@pytest.mark.parametrize("backend", ["numpy", "torch", "mindspore"])
def test_logits_and_all_gradients(case: tuple[str, Path, Arrays], backend: str) -> None:
    if backend == "mindspore":
        pytest.importorskip("mindspore")
    model_name, folder, exact = case
    rounding = ROUNDING[model_name].get(backend, SINGLE)
    script = Path(__file__).with_name("decoder_gradients.py")
    command = [sys.executable, str(script), backend, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=os.environ)
    assert done.returncode == 0, done.stderr
    with np.load(folder / f"{backend}.npz", allow_pickle=False) as found:
        assert set(found.files) == set(exact)
        for name, wanted in exact.items():
            size = np.linalg.norm(wanted)
            assert size > 1e-6, name
            assert np.linalg.norm(found[name] - wanted) / size < rounding, name
