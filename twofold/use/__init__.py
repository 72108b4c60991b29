"""What a trained encoder is used for: features of images, the nearest of them, files for other programs."""
