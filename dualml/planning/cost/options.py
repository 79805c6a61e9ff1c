"""Conversion of the options of `dualml simulate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dualml.algorithms.model.zoo import model as find_model
from dualml.common.errors import UserError
from dualml.parallel.aggregation.straggler import Straggler
from dualml.planning.cost import units
from dualml.planning.cost.fits import Fits
from dualml.planning.cost.link import Link
from dualml.planning.cost.topology import Topology

#: Default constants: a local network.
ALPHA, BANDWIDTH = "50us", "1GB/s"


def vector_bytes(size: str | None, model: str | None) -> int:
    """Return the bytes of the vector that is aggregated: ``size`` parsed, or the float32 parameters
    of ``model``, by default LeNet's. Raise `UserError` if both are given, or one cannot be parsed
    or found."""
    if size is not None and model is not None:
        raise UserError("--size and --model both say how large the vector is; give one of them")
    if size is not None:
        return units.parse_bytes(size, "--size")
    return find_model(model or "lenet").nbytes()


def load_fits(path: Path | None, *constants: str | None) -> Fits | None:
    """Read the fits of a file; None if ``path`` is None. Raise `UserError` if a file and one of the
    ``constants``, the texts of the options for α, β and γ, are given, or for a file without
    fits."""
    if path is None:
        return None
    if any(text is not None for text in constants):
        raise UserError("--fit brings α, β and γ; leave out --alpha, --bandwidth, --beta, --gamma")
    return Fits.read(path)


def make_link(
    alpha: str | None, bandwidth: str | None, beta: str | None, gamma: str | None
) -> Link:
    """Make a link from the options' texts, with a default for each that is None. Raise `UserError`
    if bandwidth and β are both given."""
    if bandwidth is not None and beta is not None:
        raise UserError("--bandwidth and --beta are one constant (β = 1 / bandwidth); give one")
    return Link(
        units.parse_seconds(alpha or ALPHA, "--alpha"),
        units.parse_seconds_per_byte(beta, "--beta")
        if beta is not None
        else 1 / units.parse_rate(bandwidth or BANDWIDTH, "--bandwidth"),
        units.parse_seconds_per_byte(gamma or "0", "--gamma"),
    )


def make_straggler(
    rank: int | None, compute: float, latency: str, bandwidth: str | None, jitter: str
) -> Straggler | None:
    """Make the straggler from the options, rank 0 if ``rank`` is None; None if nothing is slow.
    Raise `UserError` for a rank that is slow in no way."""
    slow = Straggler(
        rank or 0,
        compute,
        units.parse_seconds(latency, "--slow-latency"),
        None if bandwidth is None else units.parse_rate(bandwidth, "--slow-bandwidth"),
        units.parse_seconds(jitter, "--jitter"),
    )
    if slow != Straggler(rank or 0):
        return slow
    if rank is not None:
        raise UserError(
            f"--slow-rank {rank}: say how it is slow with --slow-compute, --slow-latency, "
            "--slow-bandwidth or --jitter"
        )
    return None


def make_topology(text: str, alpha: str | None, bandwidth: str | None, inside: Link) -> Topology:
    """Parse the topology, and set the link between its nodes: constants that are None are those of
    ``inside``, and without any the topology has no link of its own between nodes. Raise `UserError`
    if one is given for a topology without nodes."""
    topology = Topology.parse(text)
    if alpha is None and bandwidth is None:
        return topology
    if topology.kind != "nodes":
        raise UserError(f"--inter-alpha and --inter-bandwidth need nodes:K; received {text!r}")
    between = inside
    if alpha is not None:
        between = replace(between, alpha_s=units.parse_seconds(alpha, "--inter-alpha"))
    if bandwidth is not None:
        beta = 1 / units.parse_rate(bandwidth, "--inter-bandwidth")
        between = replace(between, beta_s_per_byte=beta)
    return replace(topology, inter=between)
