"""One module for each verb of Twofold. Python programs and the command line call the same functions."""
