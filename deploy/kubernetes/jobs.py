"""The Jobs of a JobSet, as its controller would make them, for clusters without it."""

from typing import Any


def jobs_of(jobset: dict[str, Any]) -> list[dict[str, Any]]:
    """
    A headless Service, and a Job for each replica of each replicated job.

    The first pod of a Job has the host name that the JobSet's DNS gives it; completionMode is left out, which clusters
    before 1.21 do not know.
    """
    name = jobset["metadata"]["name"]
    subdomain = jobset["spec"]["network"]["subdomain"]
    labels = {"jobset.sigs.k8s.io/jobset-name": name}
    service: dict[str, Any] = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels}
    made = [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": subdomain}, "spec": service}]
    for replicated in jobset["spec"]["replicatedJobs"]:
        for number in range(replicated["replicas"]):
            job_name = f"{name}-{replicated['name']}-{number}"
            spec = {key: value for key, value in replicated["template"]["spec"].items() if key != "completionMode"}
            pod = {**spec["template"]["spec"], "subdomain": subdomain}
            if spec.get("parallelism", 1) == 1:
                pod["hostname"] = f"{job_name}-0"
            spec["template"] = {"metadata": {"labels": labels}, "spec": pod}
            made.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job_name}, "spec": spec})
    return made
