"""Models split over ranks: by layers in a pipeline, or layer by layer across all ranks."""
