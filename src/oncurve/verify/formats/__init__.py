"""Form, not truth: JSON, XML and tool calls. The modules are imported where they are used; lxml and jsonschema late."""
