"""What tables at reduced scale share: the network, the images, and how both differ from those of the papers."""

from twofold_papers.reproduce.table import Setting

DATA = "cifar10-5k"
TITLE = "at reduced scale: a small convolutional encoder, 16 pixels, 5,000 training images of CIFAR-10"
REASON = "chosen for training on a CPU"
SETTINGS = (
    Setting("encoder", "conv", REASON),
    Setting("image_size", 16, REASON),
    Setting("precision", "float32", REASON),
)
NARROW = (*SETTINGS, Setting("projector", (512, 512, 256), REASON))
DIFFERS = (
    "The network is a small convolutional network of four layers, and images have 16 pixels. We train on the first 500 "
    "training images of each class of CIFAR-10 and test on all test images.",
)
