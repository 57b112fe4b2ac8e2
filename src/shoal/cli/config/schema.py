"""`shoal schema`: the JSON Schema of job specs."""

import json

import click

from shoal.cli.terminal import echo_lines
from shoal.model.spec.spec import job_schema


@click.command()
def schema() -> None:
    """Print the JSON Schema of job specs, for completion in editors.

    Save it with `shoal schema > shoal.schema.json`, and refer to it in the first
    line of a spec: `# yaml-language-server: $schema=shoal.schema.json`.
    """
    echo_lines(json.dumps(job_schema(), indent=2))
