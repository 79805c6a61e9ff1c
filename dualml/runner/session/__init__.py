"""Orchestration of a run: its trials in worker processes, the verdicts, the report."""
