"""Functions that run student code without a framework on the judge's inputs, by kind of call."""

from dualml.course.drive_lab3 import label_parts as label_parts
from dualml.course.drive_lab3 import sample_lists as sample_lists
from dualml.course.drive_lab4 import orders as orders
