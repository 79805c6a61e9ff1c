"""Prices of cases by Calculon (Isaev et al. 2023), which is in the folder of the first argument.

Reads a list of cases as JSON from standard input and writes a list of prices. Calculon has neither
context nor expert parallelism nor ZeRO-3; two matrices before a gate are given to it as a wider
feed-forward part, grouped heads as whole ones. Devices are its own files, links those of the case.
"""

from __future__ import annotations

import json
import logging
import sys
from itertools import product
from pathlib import Path
from typing import Any

FILES = {"a100": "a100_80g.json", "h100": "h100_80g_nvl8.json"}
SETTINGS = {
    "": "none",
    "none": "none",
    "selective": "attn_only",
    "operations": "attn_only",
    "full": "full",
}


def price(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return seconds and bytes, or the reason why Calculon prices no such case."""
    from calculon.llm import Llm
    from calculon.system import System

    if case["cp"] > 1 or case["ep"] > 1 or case["zero"] == 3:
        return {"reason": "context or expert parallelism, or ZeRO-3"}
    if case["device"] not in FILES or not case["micro"] or not case["chunks"]:
        return {"reason": "a device or a choice that is not known"}
    app = {
        "hidden": case["hidden"],
        "feedforward": case["ffn"] * 3 // 2 if case["gated"] else case["ffn"],
        "seq_size": case["sequence"],
        "attn_heads": case["heads"],
        "attn_size": case["width"],
        "num_blocks": case["layers"],
    }
    system = json.loads((folder / "systems" / FILES[case["device"]]).read_text("utf-8"))
    system["mem1"]["GiB"] = 10**6  # what does not fit is priced, too
    system["mem1"]["GBps"] = case["bandwidth"] / 1e9
    system["networks"][0]["bandwidth"] = case["inside"] / 1e9
    system["networks"][1]["bandwidth"] = case["between"] / 1e9
    fp8 = case["precision"] == "fp8" and "float8" in system["matrix"]
    split = case["tp"] > 1
    execution = {
        "num_procs": case["devices"],
        "tensor_par": case["tp"],
        "pipeline_par": case["pp"],
        "data_par": case["dp"],
        "batch_size": case["batch"],
        "microbatch_size": case["micro"],
        "datatype": "float8" if fp8 else "float16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": "attn_only"
        if case["flash"] and case["recompute"] != "full"
        else SETTINGS[case["recompute"]],
        "pipeline_interleaving": case["chunks"],
        "optimizer_sharding": case["zero"] >= 1 and case["dp"] > 1,
        "tensor_par_comm_type": "rs_ag" if case["sp"] and split else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": case["overlap"] and case["dp"] > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
    reason = "no network holds the layout"
    for tensor, pipeline, data in product((0, 1), (1, 0), (1, 0)):
        nets = {"tensor_par_net": tensor, "pipeline_par_net": pipeline, "data_par_net": data}
        if case["devices"] <= case["node"] and (pipeline or data or tensor):
            nets = dict.fromkeys(nets, 0)
        try:
            model = Llm(Llm.Application(app), logging.getLogger("calculon"))
            syst = System(json.loads(json.dumps(system)))
            model.compile(syst, Llm.Execution.from_json({**execution, **nets}))
            model.run(syst)
        except Exception as error:  # its assertions name no type of their own
            reason = str(error) or type(error).__name__
            continue
        return {"seconds": model.get_total_time(), "memory": model.get_mem_tier1_cap_req()}
    return {"reason": reason}


def main() -> None:
    """Price the cases of standard input."""
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    json.dump([price(case, folder) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
