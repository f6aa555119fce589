"""The command line: what people and scripts type, and what they see."""
