"""Prices of cases by llm-analysis (Li 2023), which the Python that runs this file has.

Reads a list of cases as JSON from standard input and writes a list of prices. The share of the peak
is an input of llm-analysis; it is given 0.5, what its documentation says that Megatron-LM reaches.
It has neither context parallelism nor interleaved stages.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

EFFICIENCY = 0.5
LATENCY = 8e-6


def price(case: dict[str, Any]) -> dict[str, Any]:
    """Return seconds and bytes, or the reason why llm-analysis prices no such case."""
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
    from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig

    if case["cp"] > 1 or case["ep"] > 1 or not case["micro"] or case["chunks"] != 1:
        return {"reason": "context or expert parallelism, interleaved stages or an open choice"}
    if case["precision"] == "fp8":
        return {"reason": "eight-bit types"}
    again = ActivationRecomputation
    try:
        model = ModelConfig(
            name="case",
            num_layers=case["layers"],
            n_head=case["heads"],
            hidden_dim=case["hidden"],
            vocab_size=case["vocabulary"],
            max_seq_len=case["sequence"],
            num_key_value_heads=case["kv_heads"],
            ffn_embed_dim=case["ffn"],
            mlp_gated_linear_units=case["gated"],
        )
        gpu = GPUConfig(
            "case",
            case["memory"] / 1e9,
            case["bandwidth"] / 1e9,
            case["inside"] / 1e9,
            LATENCY,
            case["peak"] / 1e12,
            inter_node_bandwidth_in_GB_per_sec=case["between"] * case["node"] / 1e9,
        )
        sharded = case["dp"] // case["replicate"]
        parallelism = ParallelismConfig(
            tp_size=case["tp"],
            pp_size=case["pp"],
            dp_size=sharded,
            rdp_size=case["replicate"],
            sp_size=case["tp"] if case["sp"] else 1,
        )
        analysis = LLMAnalysis(model, gpu, DtypeConfig(), parallelism, flops_efficiency=EFFICIENCY)
        summary = analysis.training(
            batch_size_per_gpu=case["micro"],
            gradient_accumulation_steps=case["batch"] // (case["dp"] * case["micro"]),
            global_batch_size=case["batch"],
            seq_len=case["sequence"],
            activation_recomputation=again.FULL if case["recompute"] == "full" else again.NONE,
            ds_zero=DSZeRO(case["zero"]),
            flash_attn=case["flash"],
        )
    except Exception as error:  # its assertions name no type of their own
        return {"reason": str(error) or type(error).__name__}
    memory = summary["estimated_peak_memory_per_gpu"]
    return {"seconds": summary["latency_per_iter"], "memory": memory}


def main() -> None:
    """Price the cases of standard input; what the tool itself prints goes nowhere."""
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(io.StringIO()):
        prices = [price(case) for case in cases]
    json.dump(prices, sys.stdout)


if __name__ == "__main__":
    main()
