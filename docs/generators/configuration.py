"""The configuration keys that all runs have, and those of sections that only some methods have."""

from collections.abc import Iterable, Mapping

from generators.markdown import code, table
from twofold.config import RUN_KEYS, SECTIONS
from twofold.keys import Key, describe, section_keys, shown
from twofold.methods import CATALOG, schema

INTRODUCTION = """# Configuration keys

Every setting of a run is a key. Set keys on the command line as `key=value` words. In Python, set them as keyword
arguments, with two underscores instead of a dot:

```
twofold pretrain photos/ epochs=20 augment.flip=0
```

```python
twofold.pretrain("photos/", epochs=20, augment__flip=0)
```

Several layers can set a key. The first of these layers that sets a key determines its value:

1. your settings
2. the weights that `init` names
3. values that Twofold chooses from the images and the machine
4. the defaults of the data source
5. the recipe of the method
6. the defaults on this page

`config.json` in the run folder states the value and the layer of every key. `twofold pretrain --dry-run` shows them
before the run starts.

Write `none` if a key should have no value. Separate the values of a list by commas: `projector=2048,256`. The
lists of augmentation keys such as `augment.flip` have one value for each view; Twofold repeats a shorter list.

Each method has further keys, and its own defaults for some keys on this page: see [Methods](../methods.md).
"""
# The keys without a section, by topic. A test checks that each of them has exactly one topic.
TOPICS = {
    "Images": (
        *("data", "data_dir", "class_list", "download", "test_fraction", "unlabelled_fraction", "image_size"),
        *("picture_size", "channels", "pages", "pixel_limit", "pixel_range"),
    ),
    "Method and network": ("method", "views", "encoder", "stem", "init"),
    "Pretrained weights": (
        *("recipe", "mean", "std", "freeze", "freeze_batchnorm", "encoder_lr", "layer_decay", "head_epochs", "adapter"),
    ),
    "Training": ("epochs", "batch_size", "pieces", "drop_last", "seed"),
    "Optimization": (
        *("optimizer", "lr", "lr_scaling", "momentum", "betas", "weight_decay", "decay_all", "lars_eta", "clip"),
        *("schedule", "schedule_epochs", "warmup_epochs", "restart_epochs", "online_lr"),
    ),
    "Results, reports and logs": ("select", "map_points", "log"),
    "Hardware": ("device", "precision", "compile"),
}
SECTION_TITLES = {
    "augment": "Augmentation",
    "checkpoint": "Checkpoints",
    "graph": "Graph of related images",
    "head": "Per-image classifier",
}


def pages() -> dict[str, str]:
    """Return the text of the page, by its path below docs/reference/."""
    lines = [INTRODUCTION]
    for title, names in TOPICS.items():
        lines += [f"## {title}", "", *key_table(RUN_KEYS[name] for name in names), ""]
    for name, section in SECTIONS.items():
        keys = section_keys(section, f"{name}.")
        lines += [f"## {SECTION_TITLES[name]}", "", *takers_of(keys), *key_table(keys.values()), ""]
    return {"configuration.md": "\n".join(lines)}


def takers_of(keys: Mapping[str, Key]) -> list[str]:
    """Return a sentence that names the methods that take a section, if not all of them do."""
    takers = [name for name in sorted(CATALOG) if keys.keys() <= schema(name).keys()]
    if len(takers) == len(CATALOG):
        return []
    return [f"Only these methods take these keys: {', '.join(method_link(name) for name in takers)}.", ""]


def method_link(name: str) -> str:
    return f"[`{name}`](methods/{name}.md)"


def key_table(keys: Iterable[Key], with_targets: bool = True) -> list[str]:
    """Return a table with a row for each key. With targets, other pages can link to a key."""
    rows = []
    for key in keys:
        target = f"{{#{target_of(key.name)}}}" if with_targets else ""
        rows.append([code(key.name) + target, key.help, describe(key.hint), code(shown(key.default))])
    return table(["key", "meaning", "values", "default"], rows)


def target_of(name: str) -> str:
    return f"key-{name.replace('.', '-').replace('_', '-')}"
