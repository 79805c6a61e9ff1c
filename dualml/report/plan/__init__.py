"""Plans of `dualml.planning.planner` as tables, figures and pages, beside published and measured
runs."""
