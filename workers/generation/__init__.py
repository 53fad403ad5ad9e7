"""Text generation from public prompts, with no private record within reach."""
