"""The JSON documents of `--json`: every field of every command, its kind and meaning.

A kind is text, int, float, bool or the name of an object, or `list of X`, `map of X` or
`X or null`. A name that ends with `?` is optional. Fields may be added within a
version; any other change raises `printing.VERSION`.
"""

from __future__ import annotations

from typing import Any, Final, cast

SIM_OBJECTS: Final[dict[str, Shape]] = {
    "sim_run": {
        "policy": ("text", "what placed the tasks"),
        "overlay": ("text", "which hosts gossip with which"),
        "jobs": ("int", "jobs that were submitted"),
        "ended": ("int", "jobs that ended"),
        "failed": ("int", "of these, jobs that failed"),
        "unended": ("list of sim_unended", "jobs that did not end"),
        "virtual_s": ("float", "simulated time"),
        "makespan_s": ("float", "time until the last job ended"),
        "wait_p50_s": ("float", "time from submission to start, median"),
        "wait_p95_s": ("float", "the same, 95th percentile"),
        "jct_mean_s": ("float", "time from submission to end, or so far, mean"),
        "jct_p99_s": ("float", "the same, 99th percentile"),
        "slowdown_mean": ("float", "that time as a multiple of the run time, mean"),
        "utilisation": ("float", "share of the devices in use until the makespan"),
        "moved_bytes": ("float", "bytes that jobs moved over the fabric"),
        "cross_leaf_share": ("float", "share of these that crossed switches"),
        "links": ("list of sim_link", "links of the fabric"),
        "preemptions": ("int", "preempted tasks"),
        "starts": ("int", "tasks started, again after a crash or a preemption"),
        "refusals": ("int", "demands that workers refused"),
        "messages": ("int", "between hosts"),
        "message_bytes": ("int", "their size"),
        "by_message": ("map of int", "number of messages of each kind"),
        "gossip": ("sim_gossip", "how news of room travelled"),
        "series": ("sim_series", "queue and utilisation over time"),
        "hosts_used": ("list of float", "share of the devices of each host in use"),
        "services": ("list of sim_service", "what became of their requests"),
        "events": ("int", "steps of the simulation"),
        "history": ("text", "a hash of all that happened: the same for the same seed"),
    },
    "sweep_cell": {
        "cell": ("text", "a hash of all that it depends on"),
        "scenario": ("text", "its name"),
        "point": ("map of text", "the value of each field that is varied"),
        "policy": ("text", "what placed the tasks"),
        "overlay": ("text", "which hosts gossip with which"),
        "jobs": ("int", "jobs that were submitted"),
        "ended": ("int", "jobs that ended"),
        "failed": ("int", "of these, jobs that failed"),
        "starts": ("int", "tasks started, again after a crash or a preemption"),
        "jct_mean_s": ("float", "time from submission to end, or so far, mean"),
        "jct_p99_s": ("float", "the same, 99th percentile"),
        "wait_p95_s": ("float", "time from submission to start, 95th percentile"),
        "slowdown_mean": ("float", "that time as a multiple of the run time, mean"),
        "utilisation": ("float", "share of the devices in use until the makespan"),
        "makespan_s": ("float", "time until the last job ended"),
        "cross_leaf_share": ("float", "share of bytes that crossed switches"),
        "preemptions": ("int", "preempted tasks"),
        "refusals": ("int", "demands that workers refused"),
        "messages": ("int", "between hosts"),
        "message_bytes": ("int", "their size"),
        "events": ("int", "steps of the simulation"),
        "cpu_s": ("float", "CPU time that it took to simulate"),
        "history": ("text", "a hash of all that happened: the same for the same seed"),
        "why_unended": ("text", "what kept the first job that did not end"),
    },
    "sweep_policy": {
        "column": ("text", "the policy, and the overlay if there are several"),
        "wins": ("map of int", "scenarios in which no other was better, by metric"),
        "typical": ("map of float", "ratio to the best other, geometric mean"),
        "worst": ("map of float", "ratio to the best other, highest"),
        "unended": ("int", "jobs that did not end"),
        "why_unended": ("text", "what kept one of them"),
        "refusals_per_start": ("float", "demands refused for each task started"),
        "messages_per_job": ("float", "between hosts"),
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
        "messages_per_host_s": ("float", "messages of gossip per host and second"),
        "bytes_per_host_s": ("float", "their size per host and second"),
        "converged_p50_s": ("float or null", "until 99 % of hosts had heard, median"),
        "converged_p95_s": ("float or null", "the same, 95th percentile"),
        "rounds_p50": ("float or null", "the same median, in rounds of gossip"),
        "log2_hosts": ("float", "the fewest rounds it could take"),
        "probes": ("int", "pieces of news that were followed"),
        "missed": ("int", "of these, how many never reached 99 % of hosts"),
        "stale_share": ("float", "share of the schedulers' views that were wrong"),
        "stale_age_s": ("float", "how long these had been wrong, on average"),
        "curve_s": ("list of float", "times after news appeared"),
        "curve_share": ("list of float", "share of hosts that had heard by then"),
    },
    "sim_series": {
        "step_s": ("float", "between two values"),
        "waiting": ("list of float", "tasks that waited, at most, in each step"),
        "used": ("list of float", "share of devices in use, on average"),
    },
    "sim_service": {
        "name": ("text", "name of the service"),
        "requests": ("int", "requests that came"),
        "answered": ("int", "of these, requests that were answered"),
        "refused": ("int", "requests that came when every queue was full"),
        "lost": ("int", "requests without a replica, or whose replica ended"),
        "late": ("int", "of those answered, requests answered too late"),
        "latency_p50_s": ("float", "time from a request to its answer, median"),
        "latency_p99_s": ("float", "the same, 99th percentile"),
        "busy": ("float", "share of the time of the replicas in which they worked"),
    },
    "elastic_line": {
        "policy": ("text", "what allocated the GPUs"),
        "jobs": ("int", "jobs that ended"),
        "completion_mean_h": ("float", "hours from arrival to end, mean"),
        "completion_p99_h": ("float", "the same, 99th percentile"),
        "makespan_h": ("float", "hours until the last job ended"),
        "gpu_hours": ("float", "hours of GPUs that a job had, mean"),
        "restarts": ("float", "how often a job got other GPUs, mean"),
        "waiting_max": ("int", "jobs without any GPU, at most"),
    },
    "trace_line": {
        "policy": ("text", "what ordered or placed the jobs"),
        "figures": ("map of float", "values by metric; each name ends with its unit"),
        "jobs": ("int", "jobs that were replayed"),
        "dropped": ("int", "jobs that can never fit, with --drop"),
        "events": ("int", "steps of the replay"),
        "cpu_s": ("float", "CPU time of the replay"),
    },
    "trace_record": {
        "trace": ("text", "the file of the workload"),
        "policy": ("text", "name of the policy in the paper"),
        "metric": ("text", "what was measured"),
        "value": ("float", "published value"),
        "tolerance": ("float", "allowed difference"),
        "ours": ("float", "our value"),
        "difference": ("float", "ours minus the published value"),
        "within": ("bool", "whether it is within the tolerance"),
        "table": ("text", "table of the paper"),
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
        "seed": ("int", "seed of all random choices"),
        "fabric": ("text", "its kind and size"),
        "hosts": ("int", "total number"),
        "runs": ("list of sim_run", "one for each policy and overlay"),
    },
    "sim goodput": {
        "workload": ("text", "the file, or that it was drawn"),
        "policies": ("list of elastic_line", "results of each policy"),
    },
    "sim sweep": {
        "cells": ("list of sweep_cell", "one for each scenario and policy"),
        "policies": ("list of sweep_policy", "each policy against the best other"),
    },
    "sim traces": {
        "trace": ("text", "the workload"),
        "policies": ("list of trace_line", "results of each policy"),
    },
    "sim reproduce": {
        "within": ("bool", "whether all records are within their tolerance"),
        "records": ("list of trace_record", "published results, and ours"),
    },
}


Shape = dict[str, tuple[str, str]]

NODE_NAME: Final[Shape] = {
    "id": ("text", "id of the node"),
    "petname": ("text", "its petname"),
}

_ALLOCATION: Final[Shape] = {
    "name": ("text", "its name"),
    "engine": ("text", "what lends the workers"),
    "arguments": ("list of text", "options that go to the engine as they are"),
    "time_limit_s": ("float", "how long one worker lives"),
    "idle_s": ("float", "a worker without tasks leaves after this"),
    "max": ("int", "most workers at one time"),
    "backlog": ("int", "most of these that have not joined"),
    "state": ("text", "trying, active, paused or ending"),
    "paused": ("text", "why it is paused; empty if it is not"),
    "failures": ("int", "workers in a row that did not join"),
    "pilots": ("list of pilot", "workers that are there or on their way"),
    "log": ("list of allocation_note", "the latest lines"),
}

OBJECTS: Final[dict[str, Shape]] = {
    "name": NODE_NAME,
    "usage": {
        "kind": ("text", "used by jobs of this node, or lent by it"),
        "owner": ("text", "the owner of the jobs"),
        "key": ("text", "the week, day, job or node; by UTC"),
        "name": ("text", "the name of the job, or the petname of the node"),
        "cpu_s": ("float", "CPU time in seconds"),
        "gpu_s": ("float", "GPU time in seconds"),
        "away_cpu_s": ("float", "of this, at other nodes"),
        "away_gpu_s": ("float", "of this, at other nodes"),
    },
    "keeper": {
        "node": ("name", "a node that goes on with the job if its own is gone"),
        "whole": ("bool", "whether it has all of the job, with all files"),
        "away": ("bool", "whether it cannot be reached now"),
    },
    "job": {
        "id": ("text", "unique in the shoal"),
        "number": ("int", "number of the job on this node, from 1; 0 if none"),
        "name": ("text", "name given by its author"),
        "owner": ("text", "the node that submitted it"),
        "state": (
            "text",
            "blocked, waiting, running, done, failed, cancelled, unknown, scheduled",
        ),
        "reason": ("text", "why it is in this state; may be empty"),
        "priority": ("int", "from -100 to 100"),
        "submitted_s": ("float", "when, in seconds since 1970"),
        "began_s": ("float or null", "when its first task was given to a worker"),
        "ended_s": ("float or null", "when its last task ended"),
        "tasks": ("map of int", "how many tasks are in each state"),
        "nodes": ("list of name", "where it runs; if it has ended, where it ran"),
        "keepers": ("list of keeper", "other nodes that keep it; may be empty"),
        "exit_code": ("int or null", "of the first task that failed, or 0"),
        "fraction": ("float or null", "progress from 0 to 1"),
        "at?": ("name", "the node that has it, with --everywhere"),
        "objective": ("objective or null", "what its tasks are compared by"),
        "schedule": ("schedule or null", "when it runs again, if it is a schedule"),
        "scheduled_by": ("text", "the schedule that started it; may be empty"),
        "parent": ("text", "the task that submitted it; may be empty"),
        "detached": ("bool", "whether it goes on when that task ends"),
    },
    "schedule": {
        "cron": ("text", "when it runs, in the words of cron"),
        "timezone": ("text", "time zone of these words"),
        "next_s": ("float", "when it runs next, in seconds since 1970; 0 if never"),
        "runs": ("int", "how many runs were started"),
        "last": ("text", "the job of the last run"),
        "skipped": ("text", "why the run that was due last was not started"),
    },
    "silent": {**NODE_NAME, "reason": ("text", "why it did not list its jobs")},
    "objective": {
        "metric": ("text", "a metric that tasks report"),
        "goal": ("text", "min or max"),
    },
    "task": {
        "id": ("text", "the job's id, a dot, and its place"),
        "state": ("text", "as of a job"),
        "reason": ("text", "why it is in this state; may be empty"),
        "attempts": ("int", "number of attempts"),
        "exit_code": ("int or null", "of its last attempt"),
        "nodes": ("list of name", "where it runs, or ran"),
        "argv": ("list of text", "what is run"),
        "recipe": ("text", "name of the recipe; may be empty"),
        "needs": ("text", "its requirements, as text"),
        "fraction": ("float or null", "progress from 0 to 1"),
        "metrics": ("map of float", "latest reported metrics"),
        "began_s": ("float or null", "when it was first given to a worker"),
        "ended_s": ("float or null", "when it ended"),
        "answers": ("list of answer", "results by node, if the task is verified"),
        "label": ("text", "which point of a sweep or array it is, like lr=0.1"),
        "params": ("map of any", "its params"),
        "made": ("text", "what its worker made before it started, and in what time"),
    },
    "answer": {
        **NODE_NAME,
        "said": ("text", "agreed, disagreed, believed, failed, or the result"),
    },
    "standing": {
        "trust": ("text", "trusted, unknown or shunned, by all results of its owner"),
        "judged": ("int", "how many of its results were compared"),
        "disagreed": ("int", "how many of them were wrong"),
    },
    "amounts": {
        "cpu_milli": ("int", "thousandths of a CPU"),
        "memory_bytes": ("int", "main memory"),
        "disk_bytes": ("int", "scratch space"),
        "gpu_milli": ("int", "thousandths of a GPU, summed over all GPUs"),
    },
    "device": {
        "id": ("text", "its index on the node"),
        "vendor": ("text", "nvidia, amd, …"),
        "model": ("text", "such as RTX3090"),
        "memory_bytes": ("int", "its memory"),
        "free_milli": ("int", "thousandths of it that are free"),
    },
    "node": {
        **NODE_NAME,
        "self": ("bool", "whether it is the queried node"),
        "worker": ("bool", "whether it is a worker"),
        "total": ("amounts", "what it lends"),
        "free": ("amounts", "free part of it"),
        "devices": ("list of device", "its GPUs"),
        "active": ("int", "running tasks"),
        "draining": ("bool", "whether it accepts no new tasks"),
        "networked": ("list of text", "the drivers whose tasks may use the network"),
        "terms": (
            "text",
            "why not all is offered: to this node, or by this node to other owners",
        ),
        "weaker": (
            "list of text",
            "promises to the machine's owner that hold only in part, and why",
        ),
        "drivers": ("list of text", "available drivers"),
        "labels": ("map of text", "labels that jobs can require"),
        "rtt_us": ("int", "round-trip time; 0 if unknown"),
        "path": ("text", "self, direct, relay, or empty"),
        "standing": ("standing or null", "standing by its verified results"),
        "used": ("use or null", "what its machine uses now, if it tells"),
        "machine": ("amounts or null", "what its machine has, lent or not"),
        "taken": ("text", "what other programs take of it, so that it is not free"),
        "withheld": ("amounts or null", "the same in numbers: memory and disk"),
        "others_cpu_milli": ("int", "CPU that other programs use, in thousandths"),
        "lend": ("text", "when it is lent to other owners: always, nights,idle"),
        "lending": ("text", "whether it is lent to them now, or why not"),
        "away": ("text", "how it left, if it is away"),
        "away_since_s": ("float or null", "since when it is away, in Unix time"),
        "site": ("text", "who is near whom: its labels, else measured; empty: unknown"),
        "bandwidth_bits_s": ("int", "what the link to it carries; 0 if not measured"),
    },
    "use": {
        "at_s": ("float", "end of the time it was measured over, in Unix time"),
        "over_s": ("float", "length of that time"),
        "cpu_milli": ("int", "thousandths of a CPU, by all programs"),
        "memory_bytes": ("int", "main memory that is not available"),
        "disk_bytes": ("int", "used bytes of the disk that it lends"),
        "read_bytes_s": ("int", "bytes read from disks, per second"),
        "written_bytes_s": ("int", "bytes written to disks, per second"),
        "received_bytes_s": ("int", "bytes received, without loopback, per second"),
        "sent_bytes_s": ("int", "bytes sent, without loopback, per second"),
        "devices": ("list of device_use", "its GPUs"),
    },
    "device_use": {
        "id": ("text", "its index on the node"),
        "busy_milli": ("int", "thousandths of the time in which it worked"),
        "memory_bytes": ("int", "used bytes of its memory"),
    },
    "step": {
        "name": ("text", "name of the step"),
        "after": ("list of text", "steps that must have succeeded before"),
        "counts": ("map of int", "how many tasks are in each state"),
        "argv": ("list of text", "command of its first task"),
        "recipe": ("text", "built-in program, if there is no command"),
        "setup": ("list of text", "command that prepares a worker"),
        "env": ("map of text", "environment"),
        "secrets": ("list of text", "names of its secrets"),
        "outputs": ("list of text", "paths that are kept"),
        "image": ("text", "image of its container"),
        "needs": ("text", "requirements of one task, as text"),
        "time_limit_s": ("float or null", "longest run time of a task"),
        "network": ("bool", "whether its tasks use the network"),
        "gang_min": ("int", "tasks that must run together; 0 if they are independent"),
        "driver": ("text", "what runs it"),
        "python": ("text", "its Python environment, as text; may be empty"),
        "mounts": ("list of text", "folders that workers share, by name"),
        "caches": ("list of text", "caches that last on workers, by name"),
    },
    "output": {
        "task": ("text", "the task"),
        "folder": ("text", "destination folder"),
        "files": ("int", "how many files"),
        "bytes": ("int", "their size"),
        "checkpoint": (
            "bool",
            "whether it is a checkpoint, because there are no outputs",
        ),
    },
    "verdict": {**NODE_NAME, "reason": ("text", "why it cannot run the task")},
    "explanation": {
        "task": ("text", "the task, or the first of several alike"),
        "label": ("text", "as of a task"),
        "state": ("text", "as of a job"),
        "needs": ("text", "its requirements, as text"),
        "why": ("list of text", "why it waits or runs where it does"),
        "nodes": ("list of name", "where it runs"),
        "refused": ("list of verdict", "nodes that refused"),
        "rejected": ("list of verdict", "nodes that lack a resource"),
        "fitting": ("int", "nodes that could run it now"),
        "helps": ("list of text", "changes that would let it start"),
        "cached": (
            "list of text",
            "number of nodes with its code and image cached, if it waits",
        ),
        "answers": ("list of answer", "results by node, if the task is verified"),
    },
    "prospect": {
        "node": ("node", "a node"),
        "when": ("text", "now, later or never"),
        "slots": ("int", "number of tasks it could run now"),
        "why": ("text", "reasons for or against it"),
    },
    "group": {
        "group": ("text", "tasks that become runnable together"),
        "tasks": ("int", "how many"),
        "needs": ("text", "what each asks for, in words"),
        "least": ("int", "how many must start at once"),
        "room": ("int", "how many could start now"),
        "prospects": ("list of prospect", "nodes, best first"),
        "more": ("int", "number of nodes not listed"),
        "helps": ("list of text", "what would make room"),
        "after": ("list of text", "groups that must have succeeded before"),
        "never": ("text", "what no node has, if none could run it even when idle"),
        "network": ("list of text", "what is between the nodes of a gang"),
        "memory": ("list of text", "how much memory a task needs, and who says so"),
    },
    "plan": {
        "fits_now": ("bool", "whether it would start now"),
        "needs": ("text", "its requirements, as text"),
        "groups": ("list of group", "placement of each group"),
        "more": ("int", "number of groups not listed"),
        "schedule": ("schedule or null", "when it would run, if it is a schedule"),
    },
    "newcomer": {
        **NODE_NAME,
        "has": ("text", "what it claims to lend"),
        "code": ("text", "code that its screen must show"),
    },
    "near": {
        **NODE_NAME,
        "shoal": ("text", "name of its shoal"),
        "code": ("text", "code that its screen must show"),
        "state": ("text", "looking, asking, accepted, joined, over"),
    },
    "deed": {
        "n": ("int", "number of the entry in this home"),
        "at_s": ("float", "when, in seconds since 1970"),
        "what": ("text", "action, such as submit or revoke"),
        "result": ("text", "done, refused or failed"),
        "way": ("text", "socket, token, page, certificate, link, wire or command"),
        "node": ("text", "id of the node that did or signed it"),
        "owner": ("text", "owner of that node"),
        "address": ("text", "from where"),
        "uid": ("int or null", "id of the local user, if it came by the socket"),
        "job": ("text", "the job concerned"),
        "of": ("text", "owner of that job, if different"),
        "target": ("text", "object of the action: a node, a secret, and so on"),
        "because": ("text", "details, or why it was refused"),
        "count": ("int", "number of similar actions this entry stands for"),
        "addresses": ("int", "number of addresses they came from, if several"),
    },
    "finding": {
        "what": ("text", "what was checked"),
        "state": ("text", "ok, note or bad"),
        "said": ("text", "the finding"),
        "fix": ("text", "what to do; may be empty"),
    },
    "setting": {
        "name": ("text", "the setting"),
        "value": ("any", "text, bool, int, list of text, or null"),
        "origin": ("text", "a variable, a file, or default"),
    },
    "policy": {
        "name": ("text", "its name"),
        "origin": ("text", "shoal or installed"),
        "default": ("bool", "whether it is the default"),
        "about": ("text", "description"),
    },
    "check": {
        "check": ("text", "the promise"),
        "kept": ("bool", "whether it is kept"),
        "how": ("text", "counterexample, if it is broken"),
    },
    "ping": {
        "node": ("name", "the pinged node"),
        "path": ("text", "direct, stream, relay or self; empty if there is no link"),
        "sent": ("int", "pings sent"),
        "lost": ("int", "pings lost"),
        "rtts_s": ("list of float", "round-trip times"),
        "trouble": ("text", "why there is no link, if that is known"),
    },
    "allocation": _ALLOCATION,
    "pilot": {
        "number": ("int", "counts the workers of this allocation"),
        "state": ("text", "sent, queued, started or joined"),
        "native": ("text", "what the engine calls it; empty before it has answered"),
        "node": ("name or null", "the worker that it has become"),
    },
    "allocation_note": {
        "at": ("float", "seconds since 1970"),
        "text": ("text", "what happened"),
    },
    **SIM_OBJECTS,
}

_CHANGED: Final[Shape] = {
    "name": ("text", "of the allocation"),
    "refused": ("text", "why it is paused all the same; empty if it is not"),
}
_JOB: Final = ("job", "the job as it is now")
_JOBS: Final = ("list of job", "the jobs, in the order of the answer")
_OUTPUTS: Final = ("list of output", "files written for each task")
_SUBMITTED: Final[Shape] = {
    "job": _JOB,
    "needs": ("text", "its requirements, as text"),
}

_PICTURE: Final[Shape] = {
    "at_s": ("float", "when, in seconds since 1970"),
    "nodes": ("list of node", "the queried node and the nodes it knows"),
    "jobs": ("list of job", "the latest first, and older active ones"),
}

ANSWERS: Final[dict[str, Shape]] = {
    "run": {"job": ("job", "the job as it ended"), "outputs": _OUTPUTS},
    "submit": {
        **_SUBMITTED,
        "offers?": ("plan", "placement just before the submit, with --offers"),
    },
    "ps": {
        "jobs": _JOBS,
        "total": ("int", "total number"),
        "silent?": ("list of silent", "nodes that did not answer, with --everywhere"),
        "unreached?": ("int", "other nodes that cannot be reached, with --everywhere"),
    },
    "show": {
        "job": _JOB,
        "tasks": ("list of task", "its tasks, up to --tasks"),
        "steps": ("list of step", "what it is made of, up to 100 steps"),
    },
    "logs": {
        "task": ("text", "task that wrote it"),
        "stream": ("text", "stdout or stderr"),
        "attempt": ("int", "number of the attempt"),
        "offset": ("int", "bytes of the stream before it"),
        "text": ("text", "the output, as UTF-8"),
        "base64?": ("text", "the output in base64, if it is not UTF-8"),
    },
    "metrics": {
        "job": ("text", "the id of the job"),
        "metrics": ("map of any", "by task, the latest value of each metric"),
    },
    "wait": {"jobs": _JOBS},
    "pull": {"job": ("text", "the id of the job"), "outputs": _OUTPUTS},
    "cancel": {"jobs": _JOBS},
    "usage": {
        "by": ("text", "what rows are told apart by: week, day, job or node"),
        "rows": ("list of usage", "by owner, used ones first"),
    },
    "leave": {
        "shoal": ("text", "the shoal that it left"),
        "cancelled": ("list of text", "ids of jobs that had not ended"),
        "kept": ("text", "where the grant is kept; empty if it was deleted"),
    },
    "alloc add": {
        **_ALLOCATION,
        "refused": ("text", "why the engine refuses such workers; empty if not"),
    },
    "alloc dry-run": {
        "command": ("text", "what would be run"),
        "script": ("text", "its standard input"),
        "refused": ("text", "why the engine would not take it; empty if it would"),
    },
    "alloc list": {"allocations": ("list of allocation", "all, by name")},
    "alloc log": {"log": ("list of allocation_note", "the latest lines")},
    "alloc pause": _CHANGED,
    "alloc resume": _CHANGED,
    "alloc remove": _CHANGED,
    "drain": {
        "node": ("name", "the node"),
        "tasks": ("int", "tasks that still run there"),
        "draining": ("bool", "whether it takes no new tasks now"),
    },
    "rm": {"removed": ("list of job", "as they were")},
    "retry": _SUBMITTED,
    "explain": {
        "job": ("text", "the id of the job"),
        "tasks": ("list of explanation", "tasks that are alike appear once"),
        "more": ("int", "number of groups not listed"),
    },
    "plan": OBJECTS["plan"],
    "up": {
        "pid": ("int", "the process of the node"),
        "shoal": ("text", "the shoal that it belongs to"),
        "api": ("text", "HOST:PORT for clients"),
        "web": ("text", "HOST:PORT of the page for browsers; empty if it is off"),
        "addresses": ("list of text", "where other nodes reach it"),
        "home": ("text", "its home folder"),
        "sandboxed": ("bool", "confine tasks"),
        "node": ("node", "what it lends"),
    },
    "down": {
        "ended": ("bool", "whether a node was running"),
        "pid?": ("int", "its process id"),
        "tasks?": ("int", "tasks that were stopped"),
        "active_jobs?": ("int", "jobs that continue at the next start"),
    },
    "nodes": {
        "nodes?": ("list of node", "the queried node and the nodes it knows"),
        "forgotten?": ("name", "the node that was taken off the list"),
    },
    "top": _PICTURE,
    "monitor": _PICTURE,
    "notebook": {
        "job": ("text", "id of the job it runs in"),
        "url?": ("text", "where it is reached on this machine; not with --detach"),
    },
    "ping": {"nodes": ("list of ping", "results per node")},
    "init": {
        "shoal": ("text", "the name of the new shoal"),
        "root": ("text", "the public key of its root"),
        "node": ("text", "the id of its first member"),
    },
    "invite": {
        "invitation": ("text", "the argument for `shoal join`"),
        "shoal": ("text", "the shoal that it leads to"),
        "role": ("text", "the role it grants"),
        "addresses": ("list of text", "addresses of the inviting node"),
        "ttl": ("text", "its validity"),
        "qr?": ("list of text", "with `--qr`: the rows of the code, 1 for dark"),
    },
    "join": {
        "shoal": ("text", "the shoal that was joined"),
        "node": ("text", "the id of this node"),
        "inviter": ("text", "the id of the node that let it in"),
        "roles": ("list of text", "roles of this node"),
    },
    "accept": {
        "shoal": ("text", "the shoal of this node"),
        "newcomers": ("list of newcomer", "pending join requests"),
        "near": ("near or null", "the shoal that this node asked"),
    },
    "renew": {
        "node": ("text", "the id of this node"),
        "ends_s": ("float", "when its new grant ends, in seconds since 1970"),
    },
    "revoke": {"revoked": ("name", "the removed node")},
    "doctor": {
        "well": ("bool", "whether no check failed"),
        "findings": ("list of finding", "what was checked"),
    },
    "audit": {
        "entries": ("list of deed", "entries, oldest first"),
    },
    "events": {
        "number": ("int", "number of the event on this node"),
        "at_s": ("float", "when, in seconds since 1970"),
        "what": ("text", "the kind of event"),
        "text": ("text", "what happened, in words"),
        "job?": ("text", "the job that it happened to"),
        "task?": ("text", "the task that it happened to"),
        "node?": ("name", "the node concerned"),
    },
    "web": {
        "address": ("text", "HOST:PORT of the page"),
        "url": ("text", "what a browser opens; the token is in it, so it is a secret"),
    },
    "set": {"settings": ("list of setting", "effective values and their origins")},
    "secret list": {"secrets": ("list of text", "the names of all secrets")},
    "token show": {
        "path": ("text", "its file"),
        "token?": ("text", "the token, without --path"),
    },
    "token rotate": {"path": ("text", "file of the new token")},
    "policy list": {"policies": ("list of policy", "all policies")},
    "policy test": {
        "policy": ("text", "what was tested"),
        "kept": ("bool", "whether it keeps all promises"),
        "checks": ("list of check", "promise by promise"),
    },
    **SIM_ANSWERS,
}
LOOKS: Final = ("top", "monitor")
LINES: Final = ("logs", "events", *LOOKS)
"""Commands that print a document per piece or refresh instead of one."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "any": (object,),
}


def breaches(shape: Shape, document: dict[str, Any], place: str = "$") -> list[str]:
    """Return where a document differs from its documentation."""
    known = {name.removesuffix("?"): kind for name, (kind, _) in shape.items()}
    optional = {name.removesuffix("?") for name in shape if name.endswith("?")}
    found = [f"{place}.{name} is not there" for name in known if name not in document]
    found = [
        each for each in found if each.split()[0].rpartition(".")[2] not in optional
    ]
    for name, value in document.items():
        if name not in known:
            found.append(f"{place}.{name} is not documented")
        else:
            found += _wrong(known[name], value, f"{place}.{name}")
    return found


def _wrong(kind: str, value: object, place: str) -> list[str]:
    if kind.endswith(" or null"):
        kind = kind.removesuffix(" or null")
        return [] if value is None else _wrong(kind, value, place)
    if kind.startswith("list of ") and isinstance(value, list):
        each_kind = kind.removeprefix("list of ")
        pairs = enumerate(cast("list[object]", value))
        return [
            line for n, v in pairs for line in _wrong(each_kind, v, f"{place}[{n}]")
        ]
    if kind.startswith("map of ") and isinstance(value, dict):
        each_kind = kind.removeprefix("map of ")
        items = cast("dict[str, object]", value).items()
        return [line for k, v in items for line in _wrong(each_kind, v, f"{place}.{k}")]
    if kind in OBJECTS and isinstance(value, dict):
        return breaches(OBJECTS[kind], cast("dict[str, Any]", value), place)
    right = isinstance(value, _TYPES.get(kind, ()))
    if right and kind != "any" and isinstance(value, bool) != (kind == "bool"):
        right = False  # To Python, a bool is an int.
    return [] if right else [f"{place} is {value!r}, not {kind}"]
