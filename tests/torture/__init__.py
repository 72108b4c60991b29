"""Campaigns that try to break runs and readers for a given time. `make torture` runs them and prints a table."""
