"""The kinds of Kubernetes jobs: who starts the pods, numbers them, and restarts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dualml.common.errors import UserError, did_you_mean
from dualml.runner.render.kubernetes import Object, make_object, pod_template
from dualml.runner.render.request import RenderRequest

#: Exit codes of ``dualml run`` that a restart cannot change: wrong input, backends that differ.
FINAL = (2, 3)
#: Group of the objects of Kubeflow Trainer.
TRAINER = "trainer.kubeflow.org"


def trainjob(request: RenderRequest) -> list[Object]:
    """Return the objects for Kubeflow Trainer: a runtime made for this job, because its volumes and
    its secret are the job's own, and the job.

    Source: `Kubeflow Trainer 2.3, TrainJob and TrainingRuntime
    <https://www.kubeflow.org/docs/components/trainer/>`_; JobSet's failure policy.
    """
    host = f"{request.name}-node-0-0.{request.name}"
    pod = pod_template(request, "node", "$(JOB_COMPLETION_INDEX)", host, runs=True)
    pod["spec"]["restartPolicy"] = "Never"
    final = {"containerName": "node", "operator": "In", "values": list(FINAL)}
    job = {
        # JobSet ends all pods when one fails, and restarts all of them.
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": final}]},
        "template": pod,
    }
    end = {"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    step = {"labels": {f"{TRAINER}/trainjob-ancestor-step": "trainer"}}
    jobs = {
        "failurePolicy": {"maxRestarts": request.restarts, "rules": [end]},
        "replicatedJobs": [{"name": "node", "template": {"metadata": step, "spec": job}}],
    }
    policy = {"numNodes": request.nodes, "torch": {}}
    runtime: Object = {"mlPolicy": policy, "template": {"spec": jobs}}
    version, kind = f"{TRAINER}/v1alpha1", "TrainingRuntime"
    spec: Object = {
        "runtimeRef": {"apiGroup": TRAINER, "kind": kind, "name": request.name},
        "trainer": {"numNodes": request.nodes, "numProcPerNode": request.ranks},
    }
    if request.seconds:
        spec["activeDeadlineSeconds"] = request.seconds
    return [
        make_object(request, version, kind, runtime, **{f"{TRAINER}/framework": "torch"}),
        make_object(request, version, "TrainJob", spec),
    ]


def pytorchjob(request: RenderRequest) -> list[Object]:
    """Return the object for Kubeflow's training operator: a master and workers.

    Source: training-operator 1.9, ``pytorch_types.go``; its limit counts restarts of all pods.
    """
    host = f"{request.name}-master-0"
    replicas: Object = {}
    restart = "Never" if request.is_command else "OnFailure"
    for name, count in (("Master", 1), ("Worker", request.nodes - 1)):
        if count:
            pod = pod_template(request, "pytorch", "$(RANK)", host, runs=name == "Master")
            replicas[name] = {"replicas": count, "restartPolicy": restart, "template": pod}
    policy: Object = {"backoffLimit": request.restarts * request.nodes}
    policy["cleanPodPolicy"] = "Running" if request.is_command else "None"
    if request.seconds:
        policy["activeDeadlineSeconds"] = request.seconds
    spec: Object = {"runPolicy": policy, "pytorchReplicaSpecs": replicas}
    if request.ranks > 1:
        spec["nprocPerNode"] = str(request.ranks)
    return [make_object(request, "kubeflow.org/v1", "PyTorchJob", spec)]


def volcano(request: RenderRequest) -> list[Object]:
    """Return the object for Volcano: all pods are scheduled or none; the first node is a task of
    its own, because it has the run folder.

    Volcano's job has no deadline. The deadline of the pods applies to each start, and what it ends
    is not restarted: dualml then exits with code 130.

    Source: Volcano 1.15, ``batch.volcano.sh_jobs.yaml`` and its plugins ``env`` and ``svc``.
    """
    host = f"{request.name}-first-0.{request.name}"
    tasks = []
    parts = (("first", "$(VC_TASK_INDEX)", 1), ("others", "1+$(VC_TASK_INDEX)", request.nodes - 1))
    for name, node, count in parts:
        if count:
            pod = pod_template(request, "dualml", node, host, runs=name == "first")
            pod["spec"]["restartPolicy"] = "Never"
            if request.seconds:
                pod["spec"]["activeDeadlineSeconds"] = request.seconds
            tasks.append({"name": name, "replicas": count, "template": pod})
    ends = (*FINAL, 130) if request.seconds else FINAL
    policies: list[Object] = [{"exitCode": code, "action": "TerminateJob"} for code in ends]
    if request.is_command:
        policies = []
    then = "TerminateJob" if request.is_command else "RestartJob"
    policies.append({"events": ["PodFailed", "PodEvicted"], "action": then})
    spec: Object = {
        "schedulerName": "volcano",
        "minAvailable": request.nodes,
        "maxRetry": request.restarts,
        "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
        "policies": policies,
        "tasks": tasks,
    }
    return [make_object(request, "batch.volcano.sh/v1alpha1", "Job", spec)]


@dataclass(frozen=True)
class JobKind:
    """A kind of Kubernetes job.

    Args:
        objects: returns the objects of a request.
        resource: name of the resource for ``kubectl``.
        shared: all pods are alike, so all mount the volume of the run folder.
        applied_first: number of leading objects that must exist before the others are applied.
        backend: the only backend it supports; empty for any.
    """

    objects: Callable[[RenderRequest], list[Object]]
    resource: str
    shared: bool = False
    applied_first: int = 0
    backend: str = ""


KINDS: Mapping[str, JobKind] = {
    "trainjob": JobKind(trainjob, "trainjob", shared=True, applied_first=1, backend="torch"),
    "pytorchjob": JobKind(pytorchjob, "pytorchjob", backend="torch"),
    "volcano": JobKind(volcano, "vcjob"),
}


def choose_kind(word: str | None, backend: str) -> str:
    """Return the kind of Kubernetes job that the user asked for (``word``), or by default
    ``trainjob`` for ``torch`` and ``volcano`` for other backends.

    Raises:
        UserError: there is none of that name, or it is for another backend.
    """
    name = word or ("trainjob" if backend == "torch" else "volcano")
    if name not in KINDS:
        raise UserError(f"--kind {name!r}{did_you_mean(name, KINDS)}")
    only = KINDS[name].backend
    if only and backend != only:
        runs = f"this runs {backend}" if backend else "this may run several backends"
        text = f"it is for --backend {only}, and {runs}; use --kind volcano"
        raise UserError(f"--kind {name}: {text}")
    return name
