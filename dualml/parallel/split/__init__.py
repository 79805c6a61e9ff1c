"""Models split over ranks: by layers into pipeline stages, or inside layers across a
tensor-parallel group."""
