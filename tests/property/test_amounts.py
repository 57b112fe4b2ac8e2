"""However an amount is written, it is the same amount; what is written reads back."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import UsageError
from shoal.model.gpu import GPU_MEMORY_MIN_BYTES, VENDORS, format_gpu, parse_gpu
from shoal.model.resources import GpuNeed
from shoal.model.spec.limits import CPU_MAX, GPUS_MAX, SIZE_MAX_BYTES
from shoal.model.units import (
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_size,
)

MODELS = st.sampled_from(["A100", "H100", "RTX3090", "A100-SXM4", "3090TI", "MI300X"])
SIZES = st.integers(GPU_MEMORY_MIN_BYTES, SIZE_MAX_BYTES)
GPU_WORDS = st.text("aAhH0123.,:GBMi-x ", max_size=12)


@st.composite
def needs(draw: st.DrawFn) -> GpuNeed:
    least, most = sorted([draw(SIZES), draw(SIZES)])
    counts = sorted([draw(st.integers(1, GPUS_MAX)), draw(st.integers(1, GPUS_MAX))])
    share = draw(st.none() | st.integers(1, 999))
    return GpuNeed(
        count=counts[0] if share is None else 1,
        count_max=counts[1] if share is None else 1,
        milli=1_000 if share is None else share,
        memory_min_bytes=draw(st.sampled_from([0, least])),
        memory_max_bytes=draw(st.sampled_from([None, most])),
        models=tuple(sorted(draw(st.sets(MODELS, max_size=3)))),
        vendor=draw(st.sampled_from(["", *VENDORS])),
    )


@given(needs())
def test_a_gpu_need_reads_back_as_it_was_written(need: GpuNeed) -> None:
    assert parse_gpu(format_gpu(need)) == need


@given(needs())
def test_the_parts_of_a_gpu_need_may_stand_in_any_order(need: GpuNeed) -> None:
    parts = format_gpu(need).split(":")

    for order in permutations(parts):
        assert parse_gpu(":".join(order)) == need
        assert parse_gpu(" : ".join(order).lower()) == need


def answer_to(word: str) -> GpuNeed | UsageError | None:
    try:
        return parse_gpu(word)
    except UsageError as error:
        return error


@given(GPU_WORDS)
def test_a_word_is_a_gpu_need_with_one_canonical_text_or_is_refused(word: str) -> None:
    answer = answer_to(word)

    if isinstance(answer, UsageError):
        assert answer.because
        assert answer.hint
    else:
        assert parse_gpu(format_gpu(answer)) == answer


@given(st.integers(0, SIZE_MAX_BYTES))
def test_a_size_reads_back_as_it_was_written(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(0, CPU_MAX * 1_000))
def test_cpus_read_back_as_they_were_written(cpu_milli: int) -> None:
    assert parse_cpu(format_cpu(cpu_milli)) == cpu_milli


@given(st.integers(0, 10 * 365 * 86_400 * 1_000_000))
def test_a_duration_reads_back_as_it_was_written(duration_us: int) -> None:
    duration_s = duration_us / 1_000_000

    assert parse_duration(format_duration(duration_s)) == duration_s
