"""Pieces of recipes that several methods share."""

# solo: clip_lr, eta 0.02 and no adaptation of biases and norms are how our LARS works.
SOLO_LARS = {"optimizer": "lars", "lars_eta": 0.02, "warmup_epochs": 10, "batch_size": 256}
# solo augmentations/symmetric.yaml, and /asymmetric.yaml, which solarises every second view
STRONG_COLOUR = {
    "augment.brightness": 0.8,
    "augment.contrast": 0.8,
    "augment.saturation": 0.8,
    "augment.hue": 0.2,
}
SOLARIZED = {"augment.solarize": (0.0, 0.2)}
