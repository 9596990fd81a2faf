"""What a study trains next: stages, and what they select."""
