"""Requests to language models: two formats, one model, and what is in a trace."""

import csv
import gzip
import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from tests.unit.traces.test_readers import REQUESTS, written

from shoal.errors import TraceError, UsageError
from shoal.lab.replay.published_results import default_folder
from shoal.lab.traces.formats import format_of, read_jobs
from shoal.lab.traces.llm_requests import requests
from shoal.lab.traces.request_summary import BlockCache, Lengths, summary_of
from shoal.lab.traces.values import TraceRequest

MOONCAKE = """\
{"timestamp": 0, "input_length": 1500, "output_length": 40, "hash_ids": [0, 1, 2]}

{"timestamp": 500, "input_length": 1400, "output_length": 0, "hash_ids": [0, 1, 3]}
{"timestamp": 90500.5, "input_length": 90, "output_length": 7, "hash_ids": [4], "x": 1}
"""


def request(*blocks: int, at_s: float = 0.0) -> TraceRequest:
    return TraceRequest(
        arrived_s=at_s,
        context_tokens=512 * len(blocks),
        generated_tokens=1,
        blocks=blocks,
    )


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz", "no-ending"])
def test_lines_of_json_are_read_with_their_blocks(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, MOONCAKE)

    first, second, last = requests(path)

    assert format_of(path) == "requests"
    assert first.blocks == (0, 1, 2)
    assert (second.arrived_s, second.context_tokens) == (0.5, 1400)
    assert (last.arrived_s, last.generated_tokens) == (90.5005, 7)


def test_both_formats_give_the_same_requests_and_jobs(tmp_path: Path) -> None:
    lines = written(tmp_path, "m.jsonl", MOONCAKE)
    table = written(tmp_path, "a.csv", REQUESTS)

    [azure] = requests(table)

    assert azure.blocks == ()
    assert len(read_jobs(lines).jobs) == 3
    assert len(read_jobs(table).jobs) == 1


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ('"timestamp": 500', '"timestamp": -1', "line 3: this line is no request"),
        ('"timestamp": 500', '"timestamp": "soon"', "line 3"),
        ('"input_length": 1400', '"input_length": 1.5', "line 3"),
        ('"input_length": 1400', '"input_length": 2', "3 blocks for 2 tokens"),
        ('"output_length": 7', '"other": 7', "line 4: this line is no request"),
        ("[0, 1, 3]", "[0, null]", "line 3"),
        ("[0, 1, 3]}", "[0, 1", "line 3"),
    ],
)
def test_what_is_wrong_with_a_line_is_told(
    tmp_path: Path, was: str, now: str, said: str
) -> None:
    path = written(tmp_path, "m.jsonl", MOONCAKE.replace(was, now))

    with pytest.raises(TraceError) as told:
        list(requests(path))

    assert str(path) in told.value.what
    assert said in told.value.what


def test_requests_are_read_one_at_a_time(tmp_path: Path) -> None:
    """A line that is wrong is told when it is reached, and not before."""
    path = written(tmp_path, "m.jsonl", MOONCAKE + "oh\n")

    assert len(list(islice(requests(path), 3))) == 3


def test_a_cache_finds_what_a_context_begins_with() -> None:
    cache = BlockCache(3)

    assert cache.use((1, 2, 3)) == 0
    assert cache.use((1, 2, 9)) == 2  # and now 3 is forgotten
    assert cache.use((3, 1)) == 0
    assert cache.use((1, 2, 3)) == 3  # 9 was forgotten


def test_reuse_is_that_of_a_list_in_order_of_last_use() -> None:
    """Against a list that is too simple to be wrong, for several sizes."""
    rng = Random(1)
    asked = [
        tuple(dict.fromkeys(rng.randrange(40) for _ in range(rng.randrange(1, 8))))
        for _ in range(300)
    ]
    for size in (1, 5, 20, 1_000):
        recent: list[int] = []
        found = 0
        for blocks in asked:
            for block in blocks:
                if block not in recent:
                    break
                found += 1
            for block in reversed(blocks):
                recent = [block, *(kept for kept in recent if kept != block)]
            recent = recent[:size]
        summary = summary_of((request(*blocks) for blocks in asked), (size,))
        assert summary.reuse[0].found_pct == pytest.approx(100 * found / summary.blocks)


def test_lengths_are_summed_up_within_two_per_cent() -> None:
    rng = Random(2)
    tokens = sorted(int(rng.lognormvariate(7, 2)) for _ in range(5_000))
    lengths = Lengths()
    for each in tokens:
        lengths.add(each)

    summary = lengths.summary()

    assert summary.mean == pytest.approx(sum(tokens) / len(tokens))
    assert summary.median == pytest.approx(tokens[2_500], rel=0.02)
    assert summary.p99 == pytest.approx(tokens[4_950], rel=0.02)
    assert summary.longest == tokens[-1]


def test_rates_are_of_the_whole_and_of_the_busiest_minute() -> None:
    times = [0.0, 1.0, 2.0, 61.0, 300.0]

    summary = summary_of(request(n, at_s=at) for n, at in enumerate(times))

    assert (summary.requests, summary.span_s) == (5, 300.0)
    assert summary.per_s == pytest.approx(5 / 300)
    assert summary.busiest_minute_per_s == pytest.approx(3 / 60)
    assert summary_of([]).per_s == 0.0
    assert summary_of([]).reuse == ()


def real(name: str) -> Path:
    """Return a shared trace, or skip."""
    try:
        path = default_folder(Path()) / name
    except UsageError:
        pytest.skip("there are no shared traces next to this")
    if not path.exists():
        pytest.skip(f"the shared traces have no {name}")
    return path


def test_the_blocks_of_the_published_conversations_name_all_that_went_before() -> None:
    path = real("mooncake/conversation_trace.jsonl.gz")
    before: dict[int, int] = {}

    for each in islice(requests(path), 2_000):
        for block, previous in zip(each.blocks, (-1, *each.blocks), strict=False):
            assert before.setdefault(block, previous) == previous

    assert len(before) > 2_000


def test_the_figures_of_the_published_conversations_are_those_of_a_plain_count() -> (
    None
):
    path = real("mooncake/conversation_trace.jsonl.gz")
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    found, seen = 0, set[int]()
    for line in lines:
        news = (n for n, block in enumerate(line["hash_ids"]) if block not in seen)
        found += next(news, len(line["hash_ids"]))
        seen.update(line["hash_ids"])

    summary = summary_of(requests(path), (len(seen),))

    assert summary.requests == len(lines) == 12_031
    assert summary.blocks == sum(-(-line["input_length"] // 512) for line in lines)
    assert summary.reuse[0].found_pct == pytest.approx(100 * found / summary.blocks)
    for told, name in ((summary.input, "input"), (summary.output, "output")):
        tokens = sorted(line[f"{name}_length"] for line in lines)
        assert told.mean == pytest.approx(sum(tokens) / len(tokens))
        assert told.median == pytest.approx(tokens[len(tokens) // 2], rel=0.02)
        assert told.longest == tokens[-1]


@pytest.mark.parametrize(("name", "count"), [("code", 8_819), ("conv", 19_366)])
def test_the_figures_of_azures_requests_are_those_of_a_plain_count(
    name: str, count: int
) -> None:
    path = real(f"azure_llm/AzureLLMInferenceTrace_{name}.csv.gz")
    with gzip.open(path, "rt") as file:
        lines = list(csv.DictReader(file))

    summary = summary_of(requests(path))

    assert summary.requests == len(lines) == count
    assert summary.reuse == ()
    for told, column in (
        (summary.input, "ContextTokens"),
        (summary.output, "GeneratedTokens"),
    ):
        tokens = [int(line[column]) for line in lines]
        assert told.mean == pytest.approx(sum(tokens) / len(tokens))
        assert told.longest == max(tokens)
