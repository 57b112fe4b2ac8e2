"""The JSON documents of `shoal sim`, as in `answers`."""

from __future__ import annotations

from typing import Final

Shape = dict[str, tuple[str, str]]

SIM_OBJECTS: Final[dict[str, Shape]] = {
    "sim_run": {
        "policy": ("text", "what placed the tasks"),
        "overlay": ("text", "which hosts gossip with which"),
        "jobs": ("int", "jobs that were submitted"),
        "ended": ("int", "jobs that ended"),
        "failed": ("int", "of these, jobs that failed"),
        "unended": ("list of sim_unended", "jobs that did not end"),
        "virtual_s": ("float", "simulated time"),
        "makespan_s": ("float", "until the last job that ended did"),
        "wait_p50_s": ("float", "from submitted to started, median"),
        "wait_p95_s": ("float", "the same, 95th percentile"),
        "jct_mean_s": ("float", "from submitted to ended, mean"),
        "jct_p99_s": ("float", "the same, 99th percentile"),
        "slowdown_mean": ("float", "that time as a multiple of the run time, mean"),
        "utilisation": ("float", "share of the devices in use until the makespan"),
        "moved_bytes": ("float", "by jobs, over the fabric"),
        "cross_leaf_share": ("float", "of these, between switches"),
        "links": ("list of sim_link", "links of the fabric"),
        "preemptions": ("int", "tasks that had to make room"),
        "refusals": ("int", "assignments that workers refused"),
        "messages": ("int", "between hosts"),
        "message_bytes": ("int", "their size"),
        "by_message": ("map of int", "how many there were of each kind"),
        "gossip": ("sim_gossip", "how news of room travelled"),
        "series": ("sim_series", "how it went over time"),
        "hosts_used": ("list of float", "share of the devices of each host in use"),
        "events": ("int", "steps of the simulation"),
        "history": ("text", "a hash of all that happened: the same for the same seed"),
    },
    "sim_unended": {
        "job": ("text", "the id of the job"),
        "why": ("text", "why it did not end"),
    },
    "sim_link": {
        "name": ("text", "its two ends"),
        "mean": ("float", "share of its bandwidth in use, in the busier direction"),
        "carried_bytes": ("float", "in that direction"),
    },
    "sim_gossip": {
        "messages": ("int", "messages of gossip"),
        "bytes": ("int", "their size"),
        "messages_per_host_s": ("float", "each host sent so many a second"),
        "bytes_per_host_s": ("float", "and so many bytes"),
        "converged_p50_s": ("float or null", "until 99 % of hosts had heard, median"),
        "converged_p95_s": ("float or null", "the same, 95th percentile"),
        "rounds_p50": ("float or null", "the same median, in rounds of gossip"),
        "log2_hosts": ("float", "the least rounds that it could take"),
        "probes": ("int", "news that was followed"),
        "missed": ("int", "of these, what never got to 99 %"),
        "stale_share": ("float", "views of schedulers that were wrong"),
        "stale_age_s": ("float", "for how long these were, on average"),
        "curve_s": ("list of float", "times after news appeared"),
        "curve_share": ("list of float", "of hosts that had heard by then"),
    },
    "sim_series": {
        "step_s": ("float", "between two values"),
        "waiting": ("list of float", "tasks that waited, at most, in each step"),
        "used": ("list of float", "share of devices in use, on average"),
    },
    "trace_line": {
        "policy": ("text", "what ordered or placed the jobs"),
        "figures": ("map of float", "by name, with the unit at its end"),
        "jobs": ("int", "jobs that were replayed"),
        "dropped": ("int", "jobs that can never fit, with --drop"),
        "events": ("int", "steps of the replay"),
        "cpu_s": ("float", "what it cost here"),
    },
    "trace_record": {
        "trace": ("text", "the file of the workload"),
        "policy": ("text", "what the paper calls the policy"),
        "metric": ("text", "what was measured"),
        "value": ("float", "what was published"),
        "tolerance": ("float", "the difference that is allowed"),
        "ours": ("float", "what we get"),
        "difference": ("float", "by how much that is more than what was published"),
        "within": ("bool", "whether that is allowed"),
        "table": ("text", "of the paper"),
        "nodes": ("text", "the file of the hosts, if any"),
        "cluster": ("text", "the file of the cluster, if any"),
        "demand_pct": ("int", "of all GPUs, where hosts are filled"),
        "seeds": ("any", "how many seeds, or which"),
        "seed": ("int or null", "the seed, if it is one"),
        "candidates": ("int or null", "workers drawn for each task"),
        "backfill": ("bool", "whether small jobs may overtake"),
        "starts": ("list of int", "where windows of the trace begin"),
        "length": ("int or null", "jobs in a window"),
        "first": ("int or null", "jobs from the beginning"),
        "slots": ("int or null", "processors of the cluster"),
    },
}

SIM_ANSWERS: Final[dict[str, Shape]] = {
    "sim run": {
        "scenario": ("text", "its name"),
        "seed": ("int", "all chance follows from it"),
        "fabric": ("text", "its kind and size"),
        "hosts": ("int", "total number"),
        "runs": ("list of sim_run", "one for each policy and overlay"),
    },
    "sim traces": {
        "trace": ("text", "the workload"),
        "policies": ("list of trace_line", "what came of each policy"),
    },
    "sim reproduce": {
        "within": ("bool", "whether all records are within their tolerance"),
        "records": ("list of trace_record", "published results, and ours"),
    },
}
