"""Compares examples/kubernetes with the schemas of their kinds, and each pod with what its file promises.

Needs kubernetes-validate and kubeflow-trainer-api, which has the schemas of JobSet and TrainJob. LeaderWorkerSet has no
package with its schema: of it the pod's template is compared.
"""

import pathlib
import sys

import kubernetes_validate
import kubeflow_trainer_api.models as models
import yaml

KUBERNETES = "1.37"
MODELS = {
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}
wrong = []


def unknown(given, read, path):
    """The fields that a model has left out, because it does not know them."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            yield from unknown(value, read[key], f"{path}.{key}") if key in read else [f"{path}.{key}"]
    elif isinstance(given, list) and isinstance(read, list):
        for number, (one, other) in enumerate(zip(given, read)):
            yield from unknown(one, other, f"{path}[{number}]")


def templates(value, path=""):
    """Every Job and pod within another kind, as an object of its own."""
    if isinstance(value, dict):
        spec, meta = value.get("spec"), {"name": "x", **value.get("metadata", {})}
        if isinstance(spec, dict) and "containers" in spec:
            yield path, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        elif isinstance(spec, dict) and "podFailurePolicy" in spec and path:
            yield path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
        for key, inner in value.items():
            yield from templates(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner, path + "[]")


def validate(name, object):
    try:
        kubernetes_validate.validate(object, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        wrong.append(f"{name}: {error}")


def judge(name, spec, *, is_restricted):
    """What an administrator asks of a pod; "restricted" where the file promises it."""
    containers = spec["containers"] + spec.get("initContainers", [])
    for container in containers:
        security = container["securityContext"]
        if is_restricted:
            pod = spec["securityContext"]
            passes = (
                not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
                and pod["runAsNonRoot"] and pod["runAsUser"] > 0
                and pod["seccompProfile"] == {"type": "RuntimeDefault"}
                and security["allowPrivilegeEscalation"] is False
                and security["capabilities"] == {"drop": ["ALL"]}
                and all(set(volume) <= {"name", "emptyDir"} for volume in spec["volumes"])
            )
            if not passes:
                wrong.append(f"{name}: {container['name']} does not pass \"restricted\"")
        # A TrainJob has the resources of its node.
        if "resources" not in container and container["name"] != "node":
            wrong.append(f"{name}: {container['name']} has no resources")
    if not all("sizeLimit" in volume["emptyDir"] for volume in spec["volumes"]):
        wrong.append(f"{name}: a volume has no sizeLimit")
    if spec.get("automountServiceAccountToken") is not False:
        wrong.append(f"{name}: the pod gets a token of the cluster")


def main(files):
    pods = 0
    for file in files:
        text = pathlib.Path(file).read_text()
        for object in yaml.safe_load_all(text):
            name = f"{file}: {object['kind']}"
            if model := MODELS.get(object["kind"]):
                read = model.from_dict(object).to_dict()
                wrong.extend(f"{name}: {field} is unknown" for field in unknown(object, read, ""))
            elif object["kind"] != "LeaderWorkerSet":
                validate(name, object)
            for path, template in templates(object):
                validate(name + path, template)
                if template["kind"] == "Pod":
                    judge(name, template["spec"], is_restricted='passes the Pod Security Standard "restricted"' in text)
                    pods += 1
        if "name: MINGLE_SECRET" not in text or "--private" not in text:
            wrong.append(f"{file}: no secret, or no --private")
        # A policy of the network does not concern pods on the host's network.
        if "kind: NetworkPolicy" not in text and "hostNetwork: true" not in text:
            wrong.append(f"{file}: no NetworkPolicy")
    sys.exit("\n".join(wrong) if wrong else print(f"{len(files)} files, {pods} pods"))


main(sys.argv[1:])
