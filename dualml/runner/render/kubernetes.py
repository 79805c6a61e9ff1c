"""Parts that all kinds of Kubernetes jobs share: pods, claims, and the kustomization."""

from __future__ import annotations

from typing import Any

from dualml.launch.connection import TOKEN
from dualml.runner.render.quantities import format_quantity
from dualml.runner.render.request import DATA, LAB, RUNS, UID, WORK, RenderRequest, escape_dollars

Object = dict[str, Any]


def labels(request: RenderRequest) -> dict[str, str]:
    """Return the labels that every object of a run has: application and name of the run."""
    return {"app.kubernetes.io/name": "dualml", "app.kubernetes.io/instance": request.name}


def make_object(
    request: RenderRequest, version: str, kind: str, spec: Object, name: str = "", **more: str
) -> Object:
    """Return a Kubernetes object of a run with its ``spec``, its name (the run's by default), the
    run's labels and further labels ``more``."""
    about = {"name": name or request.name, "labels": {**labels(request), **more}}
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec}


def pod_template(
    request: RenderRequest, container: str, node: str, host: str, runs: bool
) -> Object:
    """Return a pod's template, without its ``restartPolicy``.

    Args:
        request: what is rendered.
        container: its name, which some operators prescribe.
        node, host: see `RenderRequest.node_command`; ``$(X)`` in ``node`` is a variable of the
            container.
        runs: whether it mounts the volume of the run folder, as the first node does.
    """
    volumes = [claim_volume(request, "runs")] * runs + [claim_volume(request, "data")]
    mounts = [volume_mount("runs", RUNS)] * runs + [volume_mount("data", DATA)]
    if request.lab is not None:
        volumes.append({"name": "lab", "configMap": {"name": f"{request.name}-lab"}})
        mounts.append(volume_mount("lab", LAB.rpartition("/")[0]))
    if request.scripts:
        items = [{"key": script_key(path), "path": path} for path in request.scripts]
        config = {"name": f"{request.name}-work", "items": items}
        volumes.append({"name": "work", "configMap": config})
        mounts.append(volume_mount("work", WORK))
    # args, not command: the image's entry point stays, which sets paths in CANN's images.
    args = escape_dollars(request.node_command("NODE", host))
    args[args.index("NODE")] = node
    work: Object = {"name": container, "image": request.image, "args": args}
    work["env"] = [{"name": "DUALML_CACHE", "value": DATA}]
    if request.has_token:
        secret = {"name": f"{request.name}-token", "key": TOKEN}
        work["env"].append({"name": TOKEN, "valueFrom": {"secretKeyRef": secret}})
    if request.scripts:
        work["workingDir"] = WORK
    if amounts := resources(request):
        work["resources"] = {"requests": amounts, "limits": dict(amounts)}
    work |= {"volumeMounts": mounts, "securityContext": dict(CONTAINER_SECURITY)}
    spec: Object = {"securityContext": dict(POD_SECURITY), "containers": [work], "volumes": volumes}
    about: Object = {"labels": labels(request)}
    if request.rate:
        about["annotations"] = {
            f"kubernetes.io/{way}-bandwidth": format_quantity(request.rate)
            for way in ("egress", "ingress")
        }
    return {"metadata": about, "spec": spec}


#: Security contexts of a pod and of its container.
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": UID,
    "runAsGroup": UID,
    "fsGroup": UID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def resources(request: RenderRequest) -> dict[str, str]:
    """Return resource name → amount for a pod: cores, memory and accelerators, without those that
    are not asked for. They are both request and limit, so that the pods of a run are not evicted
    for one another."""
    amounts = {"cpu": str(request.cores)} if request.cores else {}
    amounts |= {"memory": format_quantity(request.memory)} if request.memory else {}
    return amounts | ({request.resource: str(request.gpus)} if request.gpus else {})


def volume_mount(name: str, path: str) -> Object:
    """Return the mount of the pod's volume ``name`` at ``path`` in a container."""
    return {"name": name, "mountPath": path}


def script_key(path: str) -> str:
    """Return the name of a script's file among the rendered files, which is also its key in the
    ConfigMap."""
    return f"work-{path.rpartition('/')[2]}"


def claim_volume(request: RenderRequest, name: str) -> Object:
    """Return the volume ``name`` of a pod, which uses the run's claim of that name."""
    return {"name": name, "persistentVolumeClaim": {"claimName": f"{request.name}-{name}"}}


def volume_claims(request: RenderRequest, shared: bool) -> list[Object]:
    """Return the claims for the volumes of the run folder and of the data.

    Args:
        request: what is rendered.
        shared: whether all pods mount the volume of the run folder.
    """
    several = request.nodes > 1
    claims = []
    for name, many in (("runs", shared and several), ("data", several)):
        spec = {
            "accessModes": ["ReadWriteMany" if many else "ReadWriteOnce"],
            "resources": {"requests": {"storage": format_quantity(request.disk)}},
        }
        own = f"{request.name}-{name}"
        claims.append(make_object(request, "v1", "PersistentVolumeClaim", spec, own))
    return claims


def files_pod(request: RenderRequest) -> Object:
    """Return a pod through which files are copied out of the volumes, and into them."""
    names = (("runs", RUNS), ("data", DATA))
    container = {
        "name": "files",
        "image": request.image,
        "args": ["sleep", "infinity"],
        "volumeMounts": [volume_mount(name, path) for name, path in names],
        "securityContext": dict(CONTAINER_SECURITY),
    }
    spec = {
        "restartPolicy": "Never",
        "securityContext": dict(POD_SECURITY),
        "containers": [container],
        "volumes": [claim_volume(request, name) for name, _ in names],
    }
    return make_object(request, "v1", "Pod", spec, f"{request.name}-files")


def kustomization(request: RenderRequest, *before: str) -> Object:
    """Return the kustomization by which ``kubectl apply -k`` applies claims, runtime and job at
    once, but not the pod of ``files.yaml``. It generates the secret, which no YAML file contains.

    Args:
        request: what is rendered.
        before: files that it applies, too, and that the user has to apply separately before:
            kustomize orders objects by kind.
    """
    document: Object = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["claims.yaml", *before, "job.yaml"],
        "generatorOptions": {"disableNameSuffixHash": True, "labels": labels(request)},
    }
    if request.has_token:
        document["secretGenerator"] = [{"name": f"{request.name}-token", "envs": ["token.env"]}]
    if request.lab is not None:
        document["configMapGenerator"] = [{"name": f"{request.name}-lab", "files": ["lab.toml"]}]
    if request.scripts:
        lent = [script_key(path) for path in request.scripts]
        document["configMapGenerator"] = [{"name": f"{request.name}-work", "files": lent}]
    return document
