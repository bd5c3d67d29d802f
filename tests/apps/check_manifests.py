"""check_manifests.py FILE...: Kubernetes manifests against what their kinds allow. Prints each container's command as a
JSON list; what is wrong goes to standard error, with status 1. The tables have the fields that the examples use, from the
API of leaderworkerset v1, of the MPI Operator v2beta1 and of core v1; a field that is not there is an error."""
import json
import re
import sys

import yaml

TEXT, NUMBER, FLAG = str, int, bool
LABELS = {"*": TEXT}
META = {"name": TEXT, "labels": LABELS}
PROBE = {"httpGet!": {"path!": TEXT, "port!": NUMBER}, "periodSeconds": NUMBER, "failureThreshold": NUMBER}
CONTAINER = {
    "name!": TEXT, "image!": TEXT, "command": [TEXT], "ports": [{"containerPort!": NUMBER}],
    "resources": {"limits": LABELS, "requests": LABELS}, "startupProbe": PROBE, "readinessProbe": PROBE,
    "livenessProbe": PROBE, "volumeMounts": [{"name!": TEXT, "mountPath!": TEXT, "readOnly": FLAG}],
}
POD = {
    "containers!": [CONTAINER], "terminationGracePeriodSeconds": NUMBER,
    "volumes": [{"name!": TEXT, "persistentVolumeClaim": {"claimName!": TEXT}}],
}
TEMPLATE = {"metadata": META, "spec!": POD}
KINDS = {
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): {
        "replicas": NUMBER,
        "leaderWorkerTemplate!": {
            "size!": NUMBER, "restartPolicy": {"RecreateGroupOnPodRestart", "None", "RecreateGroupAfterStart"},
            "workerTemplate!": TEMPLATE, "leaderTemplate": TEMPLATE,
        },
    },
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "slotsPerWorker": NUMBER,
        "runPolicy": {"cleanPodPolicy": {"None", "Running", "All"}, "backoffLimit": NUMBER},
        "mpiReplicaSpecs!": {
            "Launcher!": {"replicas": NUMBER, "restartPolicy": {"Never", "OnFailure"}, "template!": TEMPLATE},
            "Worker!": {"replicas": NUMBER, "restartPolicy": {"Never", "OnFailure"}, "template!": TEMPLATE},
        },
    },
    ("v1", "Service"): {"selector!": LABELS, "ports!": [{"port!": NUMBER, "targetPort": NUMBER}]},
}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def problems(value, schema, place):
    if isinstance(schema, set):
        if value not in schema:
            yield f"{place}: {value!r}; allowed: {sorted(schema)}"
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{place}: a list is expected"
            return
        for index, item in enumerate(value):
            yield from problems(item, schema[0], f"{place}[{index}]")
    elif isinstance(schema, dict):
        if not isinstance(value, dict):
            yield f"{place}: an object is expected"
            return
        known = {key.rstrip("!"): inner for key, inner in schema.items()}
        for key, inner in value.items():
            if key not in known and "*" not in known:
                yield f"{place}: there is no field {key!r}"
            else:
                yield from problems(inner, known.get(key, known.get("*")), f"{place}.{key}")
        for key in schema:
            if key.endswith("!") and key[:-1] not in value:
                yield f"{place}: {key[:-1]!r} is missing"
    elif type(value) is not schema:
        yield f"{place}: {value!r} is no {schema.__name__}"


def check_pod(spec, place):
    volumes = {v["name"] for v in spec.get("volumes", [])}
    for container in spec["containers"]:
        ports = {p["containerPort"] for p in container.get("ports", [])}
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{place}: {container['name']} mounts {mount['name']!r}, which is no volume"
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container and container[probe]["httpGet"]["port"] not in ports:
                yield f"{place}: {probe} asks a port that {container['name']} does not have"


def pods(node):
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for inner in node.values():
            yield from pods(inner)


def check(document, place):
    kind = (document.get("apiVersion"), document.get("kind"))
    if kind not in KINDS:
        return [f"{place}: {kind[0]} {kind[1]} is not known"]
    schema = {"apiVersion!": TEXT, "kind!": TEXT, "metadata!": {"name!": TEXT, "labels": LABELS}, "spec!": KINDS[kind]}
    found = list(problems(document, schema, place))
    if not found:
        if not NAME.fullmatch(document["metadata"]["name"]):
            found.append(f"{place}: the name {document['metadata']['name']!r} is no DNS label")
        for pod in pods(document["spec"]):
            found += check_pod(pod, place)
    return found


def main():
    wrong = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            for document in yaml.safe_load_all(file):
                found = check(document, f"{path}: {document.get('kind')}")
                wrong += found
                for pod in [] if found else pods(document["spec"]):
                    for container in pod["containers"]:
                        if "command" in container:
                            print(json.dumps(container["command"]))
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main())
