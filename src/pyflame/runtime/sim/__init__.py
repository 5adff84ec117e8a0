"""A simulated AMD GPU: executes the machine code of a gfx target, behind the functions of AMD's bindings."""
