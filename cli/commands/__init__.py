"""The commands, one file for each noun. They import what is heavy when they run, so that --help stays fast."""
