"""A head with a row for each training image, outside of the network: in memory or in a file."""
