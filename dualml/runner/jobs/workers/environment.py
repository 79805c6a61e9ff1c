"""Rank and address of a worker, and the environment variables that tell it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WorkerEnv:
    """One worker among all workers of a job.

    Args:
        rank: from 0, over all nodes.
        local_rank: from 0, on its node.
        size: number of workers on all nodes.
        local_size: number of workers on this node.
        address, port: of worker 0's node, where a process group is formed.
        scheduler: port of MindSpore's scheduler there; 0 if there is none.
    """

    rank: int
    local_rank: int
    size: int
    local_size: int
    address: str
    port: int
    scheduler: int = 0

    def variables(self) -> dict[str, str]:
        """Return the variables of ``env://`` as torchrun sets them, and those of MindSpore's
        dynamic cluster where it has a scheduler."""
        found = {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(self.local_size),
        }
        if self.scheduler:
            found |= self.cluster_variables("MS_WORKER", str(self.rank))
        return found

    def cluster_variables(self, role: str, name: str) -> dict[str, str]:
        """Return the variables of a process of MindSpore's cluster.

        Args:
            role: ``MS_WORKER`` or ``MS_SCHED``.
            name: of the process, unique in the cluster.
        """
        return {
            "MS_ROLE": role,
            "MS_WORKER_NUM": str(self.size),
            "MS_SCHED_HOST": self.address,
            "MS_SCHED_PORT": str(self.scheduler),
            "MS_NODE_ID": name,
            "RANK_ID": str(self.rank),
        }
