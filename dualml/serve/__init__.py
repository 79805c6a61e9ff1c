"""A live page of runs and jobs, for whoever holds its token: it looks at files and changes none."""
