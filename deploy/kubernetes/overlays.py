"""The manifests of the scenario: the folders beside this file, with small requests and runs of its own."""

# No target and a long budget: the scenario ends the run.
FLAGS = "--checkpoint-seconds 2 --until-return None --max-steps 1000000000"

# The fleet, small enough for the cores of a test machine.
FLEET = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {namespace}
resources: [{here}/fleet]
images: [{{name: ps-rl, newName: {image}, newTag: {tag}}}]
replicas: [{{name: ps-rl-worker, count: 2}}]
configMapGenerator:
  - {{name: ps-rl-run, behavior: merge, literals: [PRESET=cartpole-a3c, "FLAGS={flags}"]}}
patches:
  - target: {{kind: StatefulSet|Deployment}}
    patch: |
      - {{op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 20m}}
"""
# Servers of a run that counting workers propose, and none of the fleet's.
COUNTED = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {namespace}
resources: [{here}/base]
components: [{here}/standby]
images: [{{name: ps-rl, newName: {image}, newTag: {tag}}}]
replicas: [{{name: ps-rl-worker, count: 0}}]
configMapGenerator:
  - {{name: ps-rl-run, behavior: merge, literals: [PRESET=, RUN=counted, FLAGS=--checkpoint-seconds 2]}}
  - name: counting
    files: [swarm.py, integer_worker.py]
    options: {{disableNameSuffixHash: true}}
patches:
  - target: {{kind: StatefulSet}}
    patch: |
      - {{op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 20m}}
"""
# Four servers and two workers.
SHARDED = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: {namespace}
resources: [{here}/base]
components: [{here}/shards]
images: [{{name: ps-rl, newName: {image}, newTag: {tag}}}]
configMapGenerator:
  - {{name: ps-rl-run, behavior: merge, literals: [PRESET=cartpole-a3c, RUN=sharded, "FLAGS={flags}"]}}
patches:
  - target: {{kind: StatefulSet|Deployment}}
    patch: |
      - {{op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 20m}}
"""
# benchmarks/trials/swarm.py; nice, since it pushes without end.
COUNTING = """
apiVersion: v1
kind: Pod
metadata: {{name: counting-{number}, labels: {{counting: "{number}", app.kubernetes.io/part-of: ps-rl}}}}
spec:
  containers:
    - name: counting
      image: {image}
      imagePullPolicy: IfNotPresent
      command: [nice, python, -m, benchmarks.trials.swarm, $(SERVERS), "{number}", "1", "8", /tmp/counters, /tmp/stop]
      env:
        - {{name: SERVERS, value: "ps-rl-server-0.ps-rl-server:5555,ps-rl-server-1.ps-rl-server:5555"}}
        - {{name: PYTHONPATH, value: /counting}}
      volumeMounts:
        - {{name: counting, mountPath: /counting/benchmarks/trials/swarm.py, subPath: swarm.py}}
        - {{name: counting, mountPath: /counting/tests/integration/integer_worker.py, subPath: integer_worker.py}}
  volumes: [{{name: counting, configMap: {{name: counting}}}}]
---
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {namespace}-{number}}}
spec:
  capacity: {{storage: 10Gi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: {folder}/{number}}}
---
"""
