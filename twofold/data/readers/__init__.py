"""One module for each kind of source: it says what images there are, and decodes them when asked."""
