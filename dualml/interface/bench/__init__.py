"""`dualml bench`: measure what a backend's device can do, in sections that fail independently."""
