"""A real Slurm on `machines`: its controller on the login node, a daemon on each of two nodes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import psutil
from machines import NamespaceMachine, wait
from starting import Jobs, cmdline

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "sinfo")
CONFIG = """
ClusterName=kills
SlurmctldHost=node-login({login})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
SlurmdTimeout=15
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
EnforcePartLimits=ALL
MpiDefault=none
KillWait=5
NodeName=a NodeHostname=node-a NodeAddr={a} CPUs=1 RealMemory=2000
NodeName=b NodeHostname=node-b NodeAddr={b} CPUs=1 RealMemory=2000
PartitionName=p Nodes=a,b Default=YES MaxTime=30 State=UP
"""


def program(name: str) -> str:
    """Return the path of a program; raise `RuntimeError` if it is not installed."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if path is None:
        raise RuntimeError(f"Slurm is not installed: no {name} (Debian: slurm-wlm, munge)")
    return path


class Slurm(Jobs):
    """A run by ``dualml submit --on slurm``, with one task on each of two nodes."""

    at, on, more = "login", "slurm", ("--nodes", 2)

    def setup(self) -> None:
        super().setup()
        login = self.there["login"]
        self.folder = login.folder / "slurm"
        self.env["SLURM_CONF"] = str(self.folder / "slurm.conf")
        if login.daemons:
            return
        paths = {name: program(name) for name in PROGRAMS}
        (self.folder / "state").mkdir(parents=True)
        for above in (self.folder, *self.folder.parents[:4]):
            if above.parent != above and above.stat().st_uid == os.geteuid():
                above.chmod(above.stat().st_mode | 0o055)  # munged looks at its socket's way
        addresses = {name: machine.address for name, machine in self.there.items()}
        text = CONFIG.format(folder=self.folder, **addresses)
        Path(self.env["SLURM_CONF"]).write_text(text)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        account = "munge" if any(user.pw_name == "munge" for user in pwd.getpwall()) else "root"
        for owned in (key, self.folder):
            shutil.chown(owned, account)
        place = self.folder
        munged = [
            paths["munged"],
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={place}/munge.socket",
            f"--pid-file={place}/munge.pid",
            f"--log-file={place}/munge.log",
            f"--seed-file={place}/munge.seed",
        ]
        su = ["setpriv", f"--reuid={account}", "--clear-groups"] if account != "root" else []
        login.serve([*su, *munged])
        wait(lambda: (place / "munge.socket").exists(), 20, "munged")
        login.serve([paths["slurmctld"], "-D", "-f", self.env["SLURM_CONF"]], **self.env)
        self.nodes_up()

    def nodes_up(self) -> None:
        """Start the daemons of both nodes if they are not running."""
        for name in ("a", "b"):
            machine = self.there[name]
            if not any("slurmd" in " ".join(map(str, d.process.args)) for d in machine.daemons):
                words = [program("slurmd"), "-D", "-N", name, "-f", self.env["SLURM_CONF"]]
                machine.serve(words, **self.env)
        wait(self.idle, 90, "Slurm's nodes")

    def idle(self) -> bool:
        states = self.slurm("sinfo", "--noheader", "--format=%D %T").split("\n")
        return not any("*" in s or "down" in s for s in states) and any(s.strip() for s in states)

    def slurm(self, *words: str) -> str:
        done = subprocess.run(
            self.there["login"].wrap_command(words),
            capture_output=True,
            text=True,
            timeout=30,
            env={**os.environ, **self.env},
            check=False,
        )
        return done.stdout

    def state(self) -> dict[str, object]:
        """Return the job's state, which ``dualml jobs`` asks of Slurm."""
        return self.job_row()

    def is_settled(self) -> bool:
        """Return whether Slurm has requeued a job whose node is gone, and waits for the node."""
        state = self.state()
        return self.is_over() or (state["status"] == "queued" and bool(state["reason"]))

    def resume(self) -> None:
        self.nodes_up()
        super().resume()

    def parts(self, victim: str) -> list[psutil.Process]:
        if victim == "runner":  # Slurm's own process of the other rank
            return [p for p in self.there["b"].processes() if "slurmstepd" in " ".join(cmdline(p))]
        return super().parts(victim)

    def close(self) -> None:
        self.slurm("scancel", "--user=root")
        machines: list[NamespaceMachine] = [self.there["a"], self.there["b"]]
        wait(lambda: not any(m.processes() for m in machines), 40, "Slurm's steps")
