"""MindSpore backend of dualml. Importing this package does not import mindspore; its modules do."""

from __future__ import annotations

from dualml.common.former_paths import BACKEND, install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dualml.backend import BackendInfo, ExternalLaunch


install("dualml_ms", BACKEND)


def info() -> BackendInfo:
    """Return the description of this backend, for the entry point of the group ``dualml.backends``;
    mindspore is not imported."""
    # Not at the top: a process that runs students' code imports this package and must not find our
    # optimizers.
    from dualml.backend import BackendInfo

    def environ(threads: int) -> dict[str, str]:
        from dualml_ms.common.environ import environ

        return environ(threads)

    def detect_external_launch() -> ExternalLaunch | None:
        from dualml_ms.launch.external_launch import detect_external_launch

        return detect_external_launch()

    from dualml_ms.launch.launchers import LAUNCHERS

    return BackendInfo(
        name="mindspore",
        framework="mindspore",
        install="pip install 'dualml[mindspore]'",
        factory="dualml_ms.backend:MindSporeBackend",
        environ=environ,
        ranks="processes",
        preload=("dualml_ms.backend", "mindspore.ops._grad_experimental"),
        adopted=detect_external_launch,
        launchers=LAUNCHERS,
        crowded=True,
        modes=("pynative", "graph", "graph-O0", "graph-O1"),
    )
