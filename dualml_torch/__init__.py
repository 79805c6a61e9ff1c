"""PyTorch backend of dualml. Importing this package does not import torch; its modules do."""

from __future__ import annotations

from dualml.common.former_paths import BACKEND, install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dualml.backend import BackendInfo, ExternalLaunch


install("dualml_torch", BACKEND)


def info() -> BackendInfo:
    """Return the description of this backend, for the entry point of the group ``dualml.backends``;
    torch is not imported."""
    # Not at the top: a process that runs students' code imports this package and must not find our
    # optimizers.
    from dualml.backend import BackendInfo

    def environ(threads: int) -> dict[str, str]:
        from dualml_torch.common.environ import environ

        return environ(threads)

    def detect_external_launch() -> ExternalLaunch | None:
        from dualml_torch.launch.external_launch import detect_external_launch

        return detect_external_launch()

    from dualml_torch.launch.launchers import LAUNCHERS

    return BackendInfo(
        name="torch",
        framework="torch",
        install="pip install 'dualml[torch]'",
        factory="dualml_torch.backend:TorchBackend",
        environ=environ,
        ranks="processes",
        preload=("dualml_torch.backend", "torch._dynamo"),  # every optimizer imports the latter
        adopted=detect_external_launch,
        launchers=LAUNCHERS,
        modes=("eager", "compile"),
    )
