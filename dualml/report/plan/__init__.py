"""Plans of `dualml.planner` as tables, figures and pages, beside published and measured runs."""
