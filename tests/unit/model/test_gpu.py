import pytest

from shoal.errors import UsageError
from shoal.model.gpu import format_gpu, parse_gpu
from shoal.model.resources import GIB, GpuNeed
from shoal.model.spec.limits import GPUS_MAX


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("2", GpuNeed(count=2, count_max=2)),
        (2, GpuNeed(count=2, count_max=2)),
        ("24GB", GpuNeed(memory_min_bytes=24 * GIB)),
        ("24GB..:2", GpuNeed(count=2, count_max=2, memory_min_bytes=24 * GIB)),
        ("..48GB", GpuNeed(memory_max_bytes=48 * GIB)),
        (
            "24GB..48GB",
            GpuNeed(memory_min_bytes=24 * GIB, memory_max_bytes=48 * GIB),
        ),
        ("2..4", GpuNeed(count=2, count_max=4)),
        ("2..", GpuNeed(count=2, count_max=GPUS_MAX)),
        ("..4", GpuNeed(count=1, count_max=4)),
        ("A100", GpuNeed(models=("A100",))),
        ("h100,a100:2", GpuNeed(count=2, count_max=2, models=("A100", "H100"))),
        ("NVIDIA:1", GpuNeed(vendor="nvidia")),
        (
            "amd:MI300X:192GB:8",
            GpuNeed(8, 8, memory_min_bytes=192 * GIB, models=("MI300X",), vendor="amd"),
        ),
        ("0.5", GpuNeed(milli=500)),
        (0.25, GpuNeed(milli=250)),
        ("8GB:0.5", GpuNeed(milli=500, memory_min_bytes=8 * GIB)),
        (" 24 GB : 2 ", GpuNeed(count=2, count_max=2, memory_min_bytes=24 * GIB)),
    ],
)
def test_each_part_of_a_gpu_need_is_known_by_its_form(
    text: str | float, need: GpuNeed
) -> None:
    assert parse_gpu(text) == need


@pytest.mark.parametrize(
    "name",
    [
        "RTX3090",
        "A100-SXM4",
        "A100-SXM4-80GB",
        "3090TI",
        "7900XTX",
        "L4",
        "6000ADA",
        "M1",
    ],
)
def test_a_model_may_have_hyphens_and_begin_with_digits(name: str) -> None:
    need = parse_gpu(f"{name.lower()}:2")

    assert need == GpuNeed(count=2, count_max=2, models=(name,))


def test_a_count_of_zero_is_no_gpu() -> None:
    assert parse_gpu("0") is None
    assert parse_gpu(0) is None
    assert format_gpu(None) == "0"


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("A100:H100", "two models", "write A100,H100"),
        ("2:3", "two counts", "write 2..3"),
        ("24GB:48GB", "two sizes", "write 24GB..48GB"),
        ("amd:nvidia", "two vendors", "name one vendor"),
        ("A100::2", "an empty part", "remove the extra colon"),
        (":2", "an empty part", "remove the extra colon"),
        ("", "is empty", "write it like"),
        ("48GB..24GB", "range 48GB..24GB is empty", "write 24GB..48GB"),
        ("4..2", "range 4..2 is empty", "write 2..4"),
        ("16..24GB", "GPU memory '16..24GB'", "24GB..48GB"),
        ("..", "not a range", "2..4"),
        ("8B", "too small", "8GB, not 8B"),
        ("1.5", "1.5 GPUs", "share between 0 and 1"),
        ("0.0", "0.0 GPUs", "share between 0 and 1"),
        ("0.0001", "0.0001 GPUs", "share between 0 and 1"),
        ("1.2.3", "1.2.3 GPUs", "share between 0 and 1"),
        ("0..2", "begins at 0", "any_of"),
        ("A100:0", "asks for no GPU", "write 0 alone"),
        ("3090", "too many", "RTX3090"),
        ("2xA100", "not understood", "write A100:2"),
        ("24GX", "not a GPU model", "write it like A100"),
        ("240GBB", "not a GPU model", "write it like A100"),
        ("RTX 3090", "not a GPU model", "write it like A100"),
        ("A100,24GB", "'24GB' is not a GPU model", "write it like A100"),
        ("A100,", "not a GPU model", "list models as A100,H100"),
        ("-1", "not a GPU model", "write it like A100"),
        ("A" * 200, "too long", "short name"),
        (",".join(f"M{n}" for n in range(40)), "40 GPU models", "ask for memory"),
    ],
)
def test_nonsense_is_refused_with_a_reason_and_what_to_write(
    text: str, what: str, hint: str
) -> None:
    with pytest.raises(UsageError) as error:
        parse_gpu(text)

    assert what in error.value.what
    assert error.value.because
    assert hint in error.value.hint


def test_the_canonical_text_has_vendor_then_models_then_memory_then_count() -> None:
    need = parse_gpu("2..4:24GB..:h100,a100:NVIDIA")

    assert format_gpu(need) == "nvidia:A100,H100:24GB:2..4"
