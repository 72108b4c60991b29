"""`twofold.pretrain`: arrays as data, own encoders, and the run that it returns."""

import copy
import dataclasses
import os
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from typer.testing import CliRunner

import twofold
from running import Own, small
from twofold import device
from twofold.cli import app
from twofold.config import RUN_KEYS, resolve
from twofold.data.decode import decode_image
from twofold.display import Display
from twofold.evaluate import gain
from twofold.evaluate.probes import Measured, Row
from twofold.methods import schema
from twofold.runs.folder import RunFolder
from twofold.runs.preprocess import Preprocess
from twofold.train.setup import build_method
from twofold.verbs import choose, explain, pretrain, training

DIGITS = load_digits()
PIXELS = np.rint(DIGITS.images * (255 / 16)).astype(np.uint8)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    out = tmp_path_factory.mktemp("api") / "run"
    return twofold.pretrain("digits", method="frossl", out=out, epochs=2, batch_size=128, projector=(32, 16))


def test_encoder_of_a_run_gives_the_features_of_embed(finished: twofold.Run, tmp_path: Path) -> None:
    encoder = twofold.load_encoder(finished)
    assert not encoder.training
    path = twofold.embed(finished, "digits", tmp_path / "features.npz")
    with np.load(path) as file:
        assert file["features"].shape == (1797, 256)
        assert np.array_equal(file["labels"], DIGITS.target)
        with torch.no_grad():
            features = encoder(encoder.preprocess(torch.from_numpy(PIXELS[:50, None])))
        np.testing.assert_allclose(features.numpy(), file["features"][:50], rtol=1e-4, atol=1e-5)


def test_preprocess_accepts_pillow_images(finished: twofold.Run) -> None:
    encoder = twofold.load_encoder(finished.path)
    picture = Image.fromarray(PIXELS[3])
    expected = encoder.preprocess(torch.from_numpy(PIXELS[3:4, None]))
    torch.testing.assert_close(encoder.preprocess(picture), expected)
    torch.testing.assert_close(encoder.preprocess([picture, picture]), expected.repeat(2, 1, 1, 1))
    with pytest.raises(twofold.TwofoldError, match="uint8"):
        encoder.preprocess(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize(
    "given, message",
    [
        ("path.jpg", "not a str; open files with PIL.Image.open"),
        (Path("path.jpg"), "not a PosixPath"),
        (["path.jpg"], "not a list with a str in it"),
        ([np.zeros((1, 8, 8), np.uint8)], "not a list with a ndarray in it"),
        ([], "no images"),
        ((), "no images"),
        (None, "not a NoneType"),
    ],
)
def test_preprocess_raises_an_error_for_other_types(given: object, message: str) -> None:
    with pytest.raises(twofold.TwofoldError, match=message):
        Preprocess(8, 1, [0.5], [0.25])(given)


def test_normalization_uses_the_training_images(finished: twofold.Run) -> None:
    config, source = pretrain.configure("digits", "frossl", {})
    data = pretrain.read_data(config, source, pretrain.Display(quiet=True))
    values = twofold.load_encoder(finished).preprocess(data.train.images)
    assert values.mean().item() == pytest.approx(0, abs=1e-5)
    assert values.std().item() == pytest.approx(1, abs=1e-4)


def test_run_reads_its_records(finished: twofold.Run) -> None:
    assert finished.config.method == "frossl"
    assert twofold.Run(str(finished.path)) == finished
    assert twofold.Run(str(finished.path)).config == finished.config
    assert finished.metrics[-1]["step"] == 22
    assert {line["of"] for line in finished.spectrum} == {"features", "embeddings"}
    assert [row["name"] for row in finished.results["table"]] == ["trained", "untrained", "HOG + colour", "raw pixels"]
    assert finished.report.read_text().startswith("<!DOCTYPE html>") or "<html" in finished.report.read_text()


def test_results_contain_the_command_of_the_run(finished: twofold.Run) -> None:
    assert "--method frossl" in finished.results["command"]
    assert "projector=32,16" in finished.results["command"]


def test_command_contains_epochs_chosen_from_measured_speed() -> None:
    layers = {"chosen": {"epochs": 12, "warmup_epochs": 1.2}, "user": {"method": "simclr", "seed": 3}}
    text = explain.repeating_command(resolve(schema("simclr"), layers), Path("run"))
    assert text == "twofold pretrain digits --method simclr --out run epochs=12 seed=3 select=last"


def test_results_contain_the_date_and_the_gpu_memory(finished: twofold.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.now(UTC).date()
    assert today - date.fromisoformat(finished.results["date"]) <= timedelta(days=1)
    assert finished.results["memory"] is None
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: {"cuda:1": 3 * 1024 * 1024}[str(device)])
    assert device.peak_memory(torch.device("cuda:1")) == 3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status of Linux")
def test_process_memory_equals_that_of_the_kernel() -> None:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    # The kernel adds up the page counts of threads only from time to time.
    assert device.process_memory() == pytest.approx(int(line.split()[1]) / 1024, rel=0.05)


def test_reported_memory_excludes_the_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = {"MiB": 0}

    def evaluate(*_: object) -> list[object]:
        allocated["MiB"] = 9
        return []

    monkeypatch.setattr(training, "peak_memory", lambda device: allocated["MiB"])  # noqa: ARG005
    monkeypatch.setattr(training, "evaluate", evaluate)
    run = twofold.pretrain("digits", out=tmp_path / "run", **small("frossl", epochs=1))
    assert run.results["memory"] == 0


def test_run_that_ends_below_its_start_did_not_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(name: str, right: int) -> Measured:
        correct = torch.arange(100) < right
        row = Row(name, right / 100, None, None, None, right / 100)
        return Measured(row, {"linear_accuracy": correct, "knn_accuracy": correct})

    pair = [measured("trained", 40), measured("untrained", 90)]
    monkeypatch.setattr(training, "evaluate", lambda *_: pair)
    monkeypatch.setattr(gain, "LEAST_STEPS", 1)
    results = twofold.pretrain("digits", out=tmp_path / "run", **small("frossl")).results
    assert results["gain"]["kind"] == "did not help"
    assert "linear accuracy -50.0 points" in results["gain"]["sentence"]
    found = results["gain"]["comparisons"][0]
    assert (found["baseline"], found["difference"]) == ("untrained", pytest.approx(-0.5))


def test_few_photographs_get_a_hint_at_pretrained_encoders() -> None:
    def hinted(images: int, **settings: Any) -> str:
        config = resolve(schema("frossl"), {"user": {"image_size": 64, "channels": 3} | settings})
        return explain.hint_at_weights(config, images)

    assert "twofold pretrain digits --init efficientnet-lite0" in hinted(480)
    assert not hinted(50_000)
    assert not hinted(480, image_size=28)
    assert not hinted(480, init="timm:resnet18")
    assert not hinted(480, encoder="OwnNet")  # a module of the user


def test_minutes_choose_the_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(choose, "epochs_within", lambda minutes, *_: asked.append(minutes) or 1)
    keys = small("frossl")
    del keys["epochs"]
    run = twofold.pretrain(PIXELS[:100], minutes=0.5, out=tmp_path / "run", **keys | {"batch_size": 32})
    assert (asked, run.config.epochs) == ([0.5], 1)


def test_any_module_can_be_the_encoder(tmp_path: Path) -> None:
    encoder = Own()
    start = encoder.linear.weight.detach().clone()
    run = twofold.pretrain(
        (PIXELS, DIGITS.target), method="simclr", out=tmp_path / "run", encoder=encoder, **small("simclr", epochs=1)
    )
    assert run.config.encoder == "Own"
    assert run.results["command"] is None
    assert "This run was started from Python" in (run.path / "report.html").read_text(encoding="utf-8")
    with pytest.raises(twofold.TwofoldError, match="your own Own"):
        twofold.load_encoder(run)
    for other, message in ((Own, r"pass an instance, Own\("), ("Own", "pass the module"), (3, "is a int")):
        with pytest.raises(twofold.TwofoldError, match=message):
            twofold.load_encoder(run, encoder=other)
    loaded = twofold.load_encoder(run, encoder=Own(), adapter=False)
    assert not torch.equal(loaded.linear.weight, start)
    assert torch.equal(loaded.linear.weight, encoder.linear.weight)


class ChangedFeatures(Own):
    def __init__(self, change: Callable[[Tensor], Tensor]):
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(super().forward(x))


def in_inference_mode(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.inference_mode():
        return make()


@pytest.mark.parametrize(
    "encoder, message",
    [
        (Own().requires_grad_(False), "the encoder has no weights to train"),
        (nn.Flatten(), "the encoder has no weights to train"),
        (Own().double(), r"the encoder has weights of torch.float64: pass encoder.float\(\)"),
        (
            ChangedFeatures(lambda features: features.detach()),
            r"features have no gradient, .*: look for no_grad\(\) or detach\(\)",
        ),
        (
            ChangedFeatures(lambda features: features.double()),
            r"returns torch.float64 features: return features.float\(\)",
        ),
        (
            ChangedFeatures(lambda features: features.half()),
            r"returns torch.float16 features: return features.float\(\)",
        ),
        (in_inference_mode(Own), r"built in torch.inference_mode\(\) and cannot be trained: build it outside"),
    ],
)
def test_encoders_that_cannot_be_trained_raise_an_error(encoder: nn.Module, message: str, tmp_path: Path) -> None:
    with pytest.raises(twofold.TwofoldError, match=message):
        twofold.pretrain("digits", encoder=encoder, out=tmp_path / "run", **small("frossl", epochs=1))
    assert not (tmp_path / "run").exists()


class Careful(nn.Module):
    """An encoder with running statistics, and with gradients only in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.Dropout())

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.training):
            return self.layers(x)


def test_checking_an_encoder_does_not_change_it() -> None:
    config, source = pretrain.configure("digits", "frossl", small("frossl") | {"encoder": "Careful"})
    images = pretrain.read_data(config, source, Display(quiet=True)).train
    encoder, generator = Careful(), torch.get_rng_state()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    build_method(config, images, encoder)
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    with torch.inference_mode():  # as for a finished run: its encoder is copied
        build_method(config, images, copy.deepcopy(encoder))


class Empty(Own):
    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("make", [Empty, lambda: torch.compile(Own(), backend="eager")], ids=["empty", "compiled"])
def test_encoders_are_not_evaluated_as_booleans(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    encoder = make()
    start = [parameter.detach().clone() for parameter in encoder.parameters()]
    twofold.pretrain("digits", encoder=encoder, out=tmp_path / "run", **small("frossl", epochs=1))
    assert not any(torch.equal(*pair) for pair in zip(start, encoder.parameters(), strict=True))


def test_run_name_taken_by_another_run_is_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read = pretrain.read_data

    def read_slowly(*arguments: Any, **options: Any) -> Any:
        (tmp_path / "runs" / "frossl-digits-1").mkdir(parents=True)
        return read(*arguments, **options)

    monkeypatch.setattr(pretrain, "read_data", read_slowly)
    assert twofold.pretrain("digits", **small("frossl", epochs=1)).path == Path("runs/frossl-digits-2")


def test_torch_modes_of_the_caller_do_not_change_the_run(tmp_path: Path) -> None:
    def records(name: str) -> list[dict[str, Any]]:
        few = PIXELS[:96], DIGITS.target[:96]
        keys = small("simclr", epochs=1, batch_size=32, encoder="conv")
        run = twofold.pretrain(few, method="simclr", out=tmp_path / name, **keys)
        (run.path / "results.json").unlink()
        shutil.rmtree(run.path / "checkpoints")
        return twofold.resume(run, data=few).metrics

    expected = records("plain")
    with torch.inference_mode():
        assert records("inference") == expected
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert records("autocast") == expected


def test_resume_accepts_a_new_path_of_the_images(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, pixels in enumerate(PIXELS[:20]):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    run = twofold.pretrain(folder, out=tmp_path / "run", **small("frossl", epochs=1, batch_size=8))
    (run.path / "results.json").unlink()
    moved = folder.rename(tmp_path / "elsewhere")
    assert CliRunner().invoke(app, ["resume", str(run.path), str(moved), "-q"]).exit_code == 0
    assert (run.path / "results.json").exists()
    (run.path / "results.json").unlink()
    for number, path in enumerate(sorted(moved.iterdir())):  # like a copy with other modification times
        os.utime(path, (1e9 + number, 1e9 + number))
    assert twofold.resume(run, data=moved).results is not None
    (run.path / "results.json").unlink()
    (moved / "19.png").unlink()
    with pytest.raises(twofold.TwofoldError, match=r"1 image is missing: 19.png.*: twofold resume .*run DATA"):
        twofold.resume(run, data=moved)


def test_sequential_module_can_be_the_encoder(tmp_path: Path) -> None:
    def layers() -> nn.Sequential:
        return nn.Sequential(nn.Flatten(), nn.Linear(PIXELS[0].size, 12), nn.ReLU())

    encoder, pair = layers(), (PIXELS, DIGITS.target)
    run = twofold.pretrain(pair, method="simclr", out=tmp_path / "run", encoder=encoder, **small("simclr", epochs=1))
    loaded = twofold.load_encoder(run, encoder=layers())
    assert loaded.state_dict().keys() == encoder.state_dict().keys()
    pixels = loaded.preprocess(torch.tensor(PIXELS[:5, None]))
    with torch.no_grad():
        assert torch.equal(loaded(pixels), encoder.eval()(pixels))
    twofold.embed(run, pair, tmp_path / "features.npz", encoder=layers())
    with np.load(tmp_path / "features.npz") as file:
        assert np.allclose(file["features"][:5], loaded(pixels).detach(), atol=1e-5)


def test_run_on_arrays_is_resumed_with_the_arrays(tmp_path: Path) -> None:
    pair = (PIXELS, DIGITS.target)
    whole = twofold.pretrain(pair, method="simclr", out=tmp_path / "run", **small("simclr", epochs=1))
    for name in ("results.json", "encoder.safetensors"):
        (whole.path / name).unlink()
    with pytest.raises(twofold.TwofoldError, match="pass them again"):
        twofold.resume(whole)
    assert twofold.resume(whole, data=pair).results is not None
    (whole.path / "results.json").unlink()
    with pytest.raises(twofold.TwofoldError, match="have changed"):
        twofold.resume(whole, data=(PIXELS[::-1].copy(), DIGITS.target))


def test_resuming_a_run_in_use_raises_an_error(tmp_path: Path) -> None:
    run = twofold.pretrain("digits", method="simclr", out=tmp_path / "run", **small("simclr", epochs=1))
    (run.path / "results.json").unlink()
    written = (run.path / "metrics.jsonl").read_bytes() + b"{}\n"
    (run.path / "metrics.jsonl").write_bytes(written)
    with RunFolder.open(run.path).locked(), pytest.raises(twofold.TwofoldError, match="in use by another process"):
        twofold.resume(run)
    assert (run.path / "metrics.jsonl").read_bytes() == written
    assert twofold.resume(run).results is not None


def test_config_is_used_without_changes() -> None:
    resolved, _ = pretrain.configure("digits", "frossl", {"epochs": 5})
    changed = dataclasses.replace(resolved, epochs=3, lr=0.5, optimizer="sgd")
    again, _ = pretrain.configure(None, None, pretrain.as_settings(changed))
    assert dataclasses.replace(again, origin={}) == dataclasses.replace(changed, origin={})


def test_encoder_may_be_a_name_and_data_a_keyword(tmp_path: Path) -> None:
    values = small("frossl", epochs=1)
    run = twofold.pretrain(data=(PIXELS, DIGITS.target), encoder="conv", out=tmp_path / "run", **values)
    assert run.config.encoder == "conv"
    assert run.config.origin["encoder"] == "user"


def test_encoders_that_are_not_modules_raise_an_error() -> None:
    with pytest.raises(twofold.TwofoldError, match=r"the encoder is the class Linear: pass an instance, Linear\("):
        twofold.pretrain(PIXELS, encoder=nn.Linear)
    with pytest.raises(twofold.TwofoldError, match="the encoder is a function: pass a module or the name"):
        twofold.pretrain(PIXELS, encoder=lambda x: x)


def test_default_encoder_follows_the_given_image_size() -> None:
    pictures = np.zeros((4, 16, 16, 3), dtype=np.uint8)
    assert pretrain.configure(pictures, "frossl", {})[0].encoder == "conv"
    assert pretrain.configure(pictures, "frossl", {"image_size": 64})[0].encoder == "resnet18"


def test_preprocess_reads_images_like_training(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 255, (40, 24, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    alpha = generator.integers(0, 255, (40, 24, 1), dtype=np.uint8)
    Image.fromarray(np.concatenate([pixels, alpha], axis=2)).save(tmp_path / "alpha.png")
    Image.fromarray(generator.integers(0, 65535, (30, 30)).astype(np.uint16)).save(tmp_path / "deep.png")
    preprocess = Preprocess(16, 3, [0.5] * 3, [0.25] * 3)
    for path in sorted(tmp_path.iterdir()):
        expected = torch.from_numpy(decode_image(path, 16, 3))[None]
        with Image.open(path) as picture:
            torch.testing.assert_close(preprocess(picture), (expected / 255 - 0.5) / 0.25)
    wide = torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]
    torch.testing.assert_close(preprocess(wide), preprocess(wide[:, :, 8:32]))


def test_training_works_with_an_unlabelled_test_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", x_train=PIXELS[:400], y_train=DIGITS.target[:400], x_test=PIXELS[400:500])
    run = twofold.pretrain(tmp_path / "half.npz", out=tmp_path / "run", **small("frossl", epochs=1, batch_size=64))
    assert run.results["table"] == []
    assert "online_train_accuracy" in run.metrics[-1]
    assert "online_accuracy" not in run.metrics[-1]
    with np.load(twofold.embed(run, tmp_path / "half.npz", tmp_path / "features.npz")) as file:
        assert len(file["features"]) == len(file["labels"]) == len(file["split"]) == 500
        assert set(file["labels"][400:]) == {-1}
        assert np.array_equal(file["labels"][:400], DIGITS.target[:400])


class Tied(Own):
    def __init__(self) -> None:
        super().__init__()
        self.same = self.linear


def test_tied_weights_are_saved(tmp_path: Path) -> None:
    run = twofold.pretrain("digits", out=tmp_path / "run", encoder=Tied(), **small("frossl", epochs=1))
    loaded = twofold.load_encoder(run, encoder=Tied(), adapter=False)
    assert torch.equal(loaded.same.weight, loaded.linear.weight)
    twofold.embed(run, "digits", tmp_path / "features.npz", encoder=Tied())
    (run.path / "results.json").unlink()
    with pytest.raises(twofold.TwofoldError, match="your own Tied"):
        twofold.resume(run)


def test_resume_with_a_changed_group_file_raises_an_error(tmp_path: Path) -> None:
    groups = tmp_path / "groups.csv"
    groups.write_text("".join(f"{number},{number // 2}\n" for number in range(1797)))
    values = small("ridge-graph", epochs=1) | {"graph.source": str(groups)}
    run = twofold.pretrain({"data": "digits", **values}, method="ridge-graph", out=tmp_path / "run")
    (run.path / "results.json").unlink()
    groups.write_text("".join(f"{number},{number // 3}\n" for number in range(1797)))
    with pytest.raises(twofold.TwofoldError, match="have changed"):
        twofold.resume(run)


def test_config_mapping_and_keywords_give_the_same_run(tmp_path: Path) -> None:
    values = small("frossl", epochs=1, seed=3)
    first = twofold.pretrain({"data": "digits", **values}, out=tmp_path / "a")
    second = twofold.pretrain(first.config, out=tmp_path / "b")
    third = twofold.pretrain("digits", out=tmp_path / "c", **values)
    for other in (second, third):
        assert other.metrics == first.metrics
    assert dataclasses.replace(second.config, origin={}) == dataclasses.replace(first.config, origin={})


def test_small_data_get_a_small_batch_and_a_short_warmup() -> None:
    config, _ = pretrain.configure((PIXELS[:100], DIGITS.target[:100]), "frossl", {"epochs": 20})
    assert config.batch_size == 32
    assert config.warmup_epochs == 2
    assert config.origin["batch_size"] == config.origin["warmup_epochs"] == "chosen"
    asked, _ = pretrain.configure((PIXELS[:100], DIGITS.target[:100]), "frossl", {"epochs": 20, "warmup_epochs": 5})
    assert asked.warmup_epochs == 5


def test_origin_is_user_only_for_given_values(tmp_path: Path) -> None:
    assert {pretrain.configure(None, None, {})[0].origin[key] for key in ("data", "data_dir")} == {"chosen"}
    origin = pretrain.configure("digits", None, {"data_dir": str(tmp_path)})[0].origin
    assert {origin[key] for key in ("data", "data_dir")} == {"user"}


def test_default_stem_follows_the_given_image_size() -> None:
    pictures = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    assert pretrain.configure(pictures, "frossl", {})[0].stem == "small"
    assert pretrain.configure(pictures, "frossl", {"image_size": 96})[0].stem == "large"
    assert pretrain.configure(pictures, "frossl", {"image_size": 96, "stem": "small"})[0].stem == "small"


def test_resolve_without_data_sets_no_image_size() -> None:
    assert resolve(RUN_KEYS, {}).image_size is None
    assert twofold.methods() == sorted(twofold.methods())
