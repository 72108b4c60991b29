"""The per-image classifier: one row for each training image, stored outside the network in memory or in a folder."""
