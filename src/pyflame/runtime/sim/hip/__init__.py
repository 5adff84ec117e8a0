"""The functions of AMD's HIP bindings over simulated GPUs."""
