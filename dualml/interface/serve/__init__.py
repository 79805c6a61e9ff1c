"""A live web page of runs and jobs for the holder of a token; it reads files and changes none."""
