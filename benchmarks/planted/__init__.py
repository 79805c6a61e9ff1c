"""Differences planted on purpose, one at a time, into one backend: does the finder find them?"""
