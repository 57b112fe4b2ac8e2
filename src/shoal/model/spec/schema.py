"""The JSON Schema of a job spec, for completion and checks in editors."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.model.spec.spec import JobSpec


def job_schema() -> dict[str, Any]:
    """Return the schema of a spec in YAML or JSON, with a description of each field.

    What it accepts has the right shape. The amounts in it, and what fields mean
    together, are only checked when a spec is read.
    """
    schema = msgspec.json.encode(msgspec.json.schema(JobSpec))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shoal job",
        **msgspec.json.decode(schema, type=dict[str, Any]),
    }
