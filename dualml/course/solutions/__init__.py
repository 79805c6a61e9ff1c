"""The course's exercises that need no framework, solved."""
