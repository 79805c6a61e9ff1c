"""MindSpore backend of dualml. Importing this package does not import mindspore; its rooms do."""

from dualml.backend import BackendInfo


def info() -> BackendInfo:
    """Entry point of the group ``dualml.backends``."""

    def environ(threads: int) -> dict[str, str]:
        from dualml_ms.environ import environ

        return environ(threads)

    return BackendInfo(
        name="mindspore",
        framework="mindspore",
        install="pip install 'dualml[mindspore]'",
        factory="dualml_ms.backend:MindSporeBackend",
        environ=environ,
        ranks="processes",
    )
