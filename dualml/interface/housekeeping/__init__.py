"""List the runs that exist, and remove those that may go."""
