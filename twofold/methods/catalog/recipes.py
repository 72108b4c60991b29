"""Parts of recipes that several methods share."""

# solo-learn sets clip_lr and eta 0.02, and does not adapt biases and norms; Twofold's LARS does the same.
SOLO_LARS = {"optimizer": "lars", "lars_eta": 0.02, "warmup_epochs": 10, "batch_size": 256}
STRONG_COLOUR = {
    "augment.brightness": 0.8,
    "augment.contrast": 0.8,
    "augment.saturation": 0.8,
    "augment.hue": 0.2,
}
# solo-learn's augmentations/symmetric.yaml, symmetric_weak.yaml and asymmetric.yaml. Their crops are smaller than
# Twofold's defaults.
SMALL_CROPS = {"augment.crop_scale": (0.08, 1.0)}
SYMMETRIC = SMALL_CROPS | STRONG_COLOUR
SYMMETRIC_WEAK = SMALL_CROPS | {"augment.saturation": 0.4}
ASYMMETRIC = SMALL_CROPS | {"augment.solarize": (0.0, 0.2)}  # 0.2 for every second view
