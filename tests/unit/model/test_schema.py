import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from shoal.cli.config.schema import schema
from shoal.model.derive import derive
from shoal.model.ids import JobId, OwnerId
from shoal.model.spec.documents import read_yaml
from shoal.model.spec.spec import job_schema
from shoal.model.spec.submission import load_spec
from shoal.model.totals import totals

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = sorted((*FOLDER.glob("*.yaml"), *FOLDER.glob("*.json")))
SPECS = [path for path in EXAMPLES if path.suffix == ".yaml"]


def name_of(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_every_example_can_be_read_and_derived(path: Path) -> None:
    spec = load_spec(path.read_bytes(), "json" if path.suffix == ".json" else "yaml")

    job = derive(spec, JobId("j"), OwnerId("ann"))

    assert totals(job).tasks >= 1


@pytest.mark.parametrize("path", SPECS, ids=name_of)
def test_every_example_satisfies_the_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    jsonschema.validate(read_yaml(path.read_bytes()), job_schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_the_canonical_form_of_every_example_satisfies_the_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    spec = load_spec(path.read_bytes(), "json" if path.suffix == ".json" else "yaml")

    jsonschema.validate(json.loads(msgspec.json.encode(spec)), job_schema())


@pytest.mark.parametrize(
    "document", [{"comand": "x"}, {"priority": 101}, {"retry": {"maxx": 1}}, ["x"]]
)
def test_the_schema_refuses_what_has_the_wrong_shape(document: object) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, job_schema())


def fields_of(definition: dict[str, Any]) -> list[str]:
    return list(definition["properties"])


def test_the_schema_describes_every_part_of_a_spec() -> None:
    parts = job_schema()["$defs"]

    assert {"JobSpec", "StepSpec", "ResourcesSpec", "PlacementSpec"} <= parts.keys()
    assert all(part["description"] for part in parts.values())
    assert all(part["additionalProperties"] is False for part in parts.values())
    assert fields_of(parts["ResourcesSpec"]) == ["gpu", "cpu", "ram", "disk"]


def test_the_command_prints_the_schema_as_json() -> None:
    result = CliRunner().invoke(schema)

    assert result.exit_code == 0
    assert json.loads(result.stdout) == job_schema()
