"""The command line, the Python API, the web pages, and the checks of an installation."""
