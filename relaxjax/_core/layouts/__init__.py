"""How arrays lie on a mesh: sharded, copied, or in parts that add up."""
