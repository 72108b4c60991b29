"""Run folders as self-contained pages, and the small pictures and charts in them."""
