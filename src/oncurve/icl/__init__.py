"""The in-context laboratory: transformers that learn to regress from the examples in their prompt.

functions ► layout ► network ► training ► run folder ► evaluate
"""
