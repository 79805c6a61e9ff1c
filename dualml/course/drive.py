"""Runs a student's code that needs no framework on inputs that the judge has drawn."""

from dualml.course.drive_lab3 import label_parts as label_parts
from dualml.course.drive_lab3 import sample_lists as sample_lists
from dualml.course.drive_lab4 import orders as orders
