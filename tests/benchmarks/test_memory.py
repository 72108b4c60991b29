"""`benchmarks.memory` shows the paper's memory for the sizes, networks and settings that the paper has."""

import pytest

from benchmarks import memory


@pytest.mark.parametrize(
    "words, method, encoder, expected",
    [
        ([], "s-diet", "resnet18", 2312),
        (["image_size=64"], "s-diet", "resnet18", None),
        (["--size", "64", "stem=large"], "s-diet", "resnet50", 2976),
        (["--size", "224"], "byol", "resnet50", None),  # out of memory in the paper
        (["--size", "96"], "s-diet", "resnet50", None),
        (["--batch", "128"], "s-diet", "resnet18", None),
        (["projector=64"], "s-diet", "resnet18", None),
    ],
)
def test_published_memory_is_that_of_the_same_size_and_settings(
    words: list[str], method: str, encoder: str, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "counted", lambda _: {"counted": 1.0})
    options = memory.arguments([*words, "--images", "300", "--device", "cpu"])
    row = memory.row(method, encoder, "float32", options)
    assert row["paper"] == expected
    assert row["size"] == (64 if "image_size=64" in words else options.size)
