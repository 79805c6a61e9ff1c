"""PyTorch backend of dualml. Importing this package does not import torch; its rooms do."""

from dualml.backend import BackendInfo


def info() -> BackendInfo:
    """Entry point of the group ``dualml.backends``."""

    def environ(threads: int) -> dict[str, str]:
        from dualml_torch.environ import environ

        return environ(threads)

    return BackendInfo(
        name="torch",
        framework="torch",
        install="pip install 'dualml[torch]'",
        factory="dualml_torch.backend:TorchBackend",
        environ=environ,
        ranks="processes",
    )
