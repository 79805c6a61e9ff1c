"""What a backend's device can do, measured in sections that fail alone: `dualml bench`."""
