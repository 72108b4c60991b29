"""Keys, layers, errors for bad values, and writing and reading a configuration."""

import dataclasses
import json
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from twofold import keys
from twofold.checksums import seal, unseal
from twofold.config import RUN_KEYS, dump, flat, load, resolve
from twofold.errors import TwofoldError
from twofold.keys import Bounds, coerce, parse_overrides
from twofold.methods import CATALOG, schema, schema_of_run


@pytest.mark.parametrize(
    "text, hint, value",
    [
        ("3", int, 3),
        ("1e3", int, 1000),
        (str(2**60 + 1), int, 2**60 + 1),
        ("0.5", float, 0.5),
        ("true", bool, True),
        ("off", bool, False),
        ("0.2,1", tuple[float, float], (0.2, 1.0)),
        ("[64, 128]", tuple[int, ...], (64, 128)),
        ("none", int | None, None),
        ("7", int | None, 7),
        ("0.5", float | tuple[float, ...], 0.5),
        ("0,0.2", float | tuple[float, ...], (0.0, 0.2)),
        ("b", Literal["a", "b"], "b"),
        ("3", Literal[1, 3], 3),
        ("none", str | None, None),
        ("None", str | None, None),
        (np.bool_(True), bool, True),
        (np.array([64, 128]), tuple[int, ...], (64, 128)),
        (np.array(3), int, 3),
        (torch.device("cuda", 1), str, "cuda:1"),
    ],
)
def test_coerce_converts_text_and_keeps_values(text: object, hint: object, value: object) -> None:
    for either in (text, value):
        assert coerce(either, hint) == value
        assert type(coerce(either, hint)) is type(value)


@pytest.mark.parametrize(
    "text, hint",
    [
        ("3.5", int),
        ("x", int),
        ("inf", float),
        ("nan", float),
        ("2", bool),
        ("1", tuple[float, float]),
        ("1,2,3", tuple[float, float]),
        ("c", Literal["a", "b"]),
        (True, int),
        (np.bool_(True), int),
        (np.zeros((2, 2)), tuple[float, ...]),
        (None, float),
        ("-1", Annotated[float, Bounds(0)]),
        ("0", Annotated[float, Bounds(0, above=True)]),
        ("0.5,1.5", tuple[Annotated[float, Bounds(0, 1)], ...]),
    ],
)
def test_coerce_raises_value_error_for_unreadable_values(text: object, hint: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 — the caller writes the message
        coerce(text, hint)


def test_later_layers_override_earlier_ones_and_origin_names_the_layer() -> None:
    layers = {
        "method": {"lr": 0.3, "epochs": 5},
        "data": {"epochs": 6},
        "chosen": {"image_size": 8},
        "user": {"lr": "2"},
    }
    resolved = resolve(RUN_KEYS, layers)
    assert (resolved.lr, resolved.epochs, resolved.image_size) == (2.0, 6, 8)
    assert resolved.origin == {"lr": "user", "epochs": "data", "image_size": "chosen"}


@pytest.mark.parametrize(
    "given, message",
    [
        ({"epoch": "3"}, "unknown key 'epoch', did you mean 'epochs'?"),
        ({"augment.flp": "0"}, "did you mean 'augment.flip'?"),
        ({"epochs": "0"}, "epochs=0 is not a whole number from 1 to 10000000"),
        ({"epochs": "many"}, "epochs=many is not a whole number"),
        ({"optimizer": "sdg"}, "is not sgd or adam or adamw or lars"),
        ({"augment.flip": "1.5"}, "from 0 to 1"),
        ({"augment.crop_scale": "0.9,0.1"}, "the first value must not be larger"),
        ({"augment.crop_scale": "0,1"}, "above 0"),
        ({"augment.blur": "0,0.1,0.2"}, "3 values for 2 views"),
        ({"epochs": np.zeros((2, 1))}, "epochs=0,0 is not a whole number"),
    ],
)
def test_errors_name_the_key_the_value_and_the_rule(given: dict[str, str], message: str) -> None:
    with pytest.raises(TwofoldError, match=None) as error:
        resolve(RUN_KEYS, {"user": given})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_key_given_twice_is_an_error() -> None:
    with pytest.raises(TwofoldError, match="twice"):
        parse_overrides(["epochs=1", "epochs=2"])


def test_a_value_may_contain_an_equals_sign() -> None:
    assert parse_overrides(["data=a=b"]) == {"data": "a=b"}


@pytest.mark.parametrize("method", sorted(CATALOG))
def test_method_keys_have_other_names_than_run_keys(method: str) -> None:
    parameters = keys.parameter_keys(CATALOG[method].build)
    assert not set(parameters) & set(RUN_KEYS)
    assert all(key.default is not dataclasses.MISSING for key in parameters.values())


@pytest.mark.parametrize("method", sorted(CATALOG))
def test_recipe_is_valid_and_unchanged_after_saving_and_loading(method: str) -> None:
    parameters = resolve(schema(method), {}).parameters
    recipe = CATALOG[method].recipe_for(parameters)
    resolved = resolve(schema(method), {"method": recipe, "user": {"method": method, "seed": 7}})
    loaded = load(dump(resolved), schema_of_run)
    assert loaded == resolved
    assert json.loads(dump(resolved))["derived"]["scaled_lr"] == resolved.scaled_lr


@given(
    batch=st.integers(2, 8192),
    lr=st.floats(1e-6, 10, allow_nan=False),
    rule=st.sampled_from(["linear", "sqrt", "none"]),
)
def test_scaled_learning_rate_follows_lr_scaling(batch: int, lr: float, rule: str) -> None:
    resolved = resolve(RUN_KEYS, {"user": {"batch_size": batch, "lr": lr, "lr_scaling": rule}})
    expected = {"linear": lr * batch / 256, "sqrt": lr * (batch / 256) ** 0.5, "none": lr}[rule]
    assert resolved.scaled_lr == pytest.approx(expected, rel=1e-12)


def saved(**changes: object) -> dict[str, Any]:
    """The content of config.json with other values, as a version of Twofold that knows them would write it."""
    record = unseal(json.loads(dump(resolve(schema("frossl"), {"user": {"epochs": 7}}))), "")
    return {**record, **changes}


def test_a_newer_format_is_refused_with_the_version_that_reads_it() -> None:
    with pytest.raises(TwofoldError, match=r"format 99 and was written by Twofold 7\.5.*use Twofold 7\.5 or newer"):
        load(json.dumps(seal(saved(format=99, twofold="7.5"))), schema_of_run)


def test_a_configuration_without_checksum_can_be_read() -> None:
    """Format 1 had none."""
    assert load(json.dumps(saved(format=1)), schema_of_run).epochs == 7


def test_a_damaged_configuration_is_refused() -> None:
    text = json.dumps(seal(saved()))
    with pytest.raises(TwofoldError, match=r"does not have the checksum that Twofold wrote; restore it from a copy"):
        load(text.replace('"epochs": 7', '"epochs": 5'), schema_of_run)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 99, "values": {"method": "frossl"}, "origin": {}}', "\x00"]
)
def test_text_that_is_not_a_configuration_is_an_error(text: str) -> None:
    with pytest.raises(TwofoldError):
        load(text, schema_of_run)


def test_unknown_keys_of_a_saved_run_name_another_version() -> None:
    values = saved()["values"] | {f"new{number}": 1 for number in range(9)}
    with pytest.raises(TwofoldError, match=r"\(new0, new1, new2, new3, new4, …\): Twofold 7\.5 wrote this run"):
        load(json.dumps(seal(saved(values=values, twofold="7.5"))), schema_of_run)


def test_flat_contains_every_key() -> None:
    resolved = resolve(schema("simclr"), {"user": {"temperature": 0.7}})
    assert set(flat(resolved)) == set(schema("simclr"))
    assert flat(resolved)["temperature"] == 0.7
