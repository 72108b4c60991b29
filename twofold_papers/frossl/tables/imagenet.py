"""FroSSL, Figure 4: ImageNet with a ResNet-18, FroSSL compared with Barlow Twins."""

from twofold_papers.reproduce.published import published
from twofold_papers.reproduce.readings import LINEAR, online_at, probed
from twofold_papers.reproduce.table import Probe, Row, Setting, Statement, Table

SECTION = "section 6.2"
ADAM = probed("adam", "linear accuracy, Adam, %")
PROBES = (Probe("adam", solver="adam"),)

TABLE = Table(
    name="frossl-imagenet",
    paper="frossl",
    number="Figure 4",
    title="ImageNet, ResNet-18, 100 epochs",
    columns=(ADAM, LINEAR, online_at(1), online_at(10), online_at(30)),
    epochs=100,
    data="imagenet",
    settings=(
        Setting("encoder", "resnet18", SECTION),
        Setting("batch_size", 224, SECTION),
        Setting("optimizer", "sgd", SECTION),
        Setting("lr", 0.01, SECTION),
        Setting("lr_scaling", "none", "the paper gives the rate for this batch size"),
        Setting("weight_decay", 5e-4, SECTION),
        Setting("schedule", "restarts", SECTION),
        Setting("restart_epochs", 15.0, SECTION),
        Setting("warmup_epochs", 0, "the paper mentions no warm-up"),
        Setting("augment.saturation", 0.8, "section 6.2: the augmentations of SimCLR"),
        Setting("augment.brightness", 0.8, "as saturation"),
        Setting("augment.contrast", 0.8, "as saturation"),
        Setting("augment.hue", 0.2, "as saturation"),
        Setting("augment.crop_scale", (0.08, 1.0), "as saturation"),
        Setting("augment.blur", 0.5, "as saturation"),
    ),
    rows=[
        Row("FroSSL", "frossl", {}, {ADAM.title: published({"imagenet": 53.4}, epochs=100)}, probes=PROBES),
        Row(
            "Barlow Twins",
            "barlow-twins",
            {"weight": 5e-3, "augment.solarize": 0.0},
            {ADAM.title: published({"imagenet": 52.5}, epochs=100)},
            probes=PROBES,
        ),
    ],
    statements=(
        Statement(
            "after one epoch, FroSSL is far ahead of Barlow Twins",
            SECTION,
            online_at(1),
            "FroSSL",
            "above",
            "Barlow Twins",
            published="+12.2",
        ),
        Statement("after 100 epochs, both are similar", SECTION, ADAM, "FroSSL", "equal", "Barlow Twins", by=1.5),
    ),
    differs=(
        "Figure 4 shows the accuracy of linear probes after each of the first 30 epochs as curves, without numbers. "
        "The columns of online accuracy are those of a classifier that is trained during the run.",
        "The paper does not give the widths of the projector for ImageNet. We use those of appendix B.1.",
        "The paper does not say by which factor the probe's learning rate decreases every 10 epochs. We use 10.",
    ),
)
