"""Code that runs inside a worker process: one framework, one rank of one trial."""
