"""What belongs to nodes besides the Node, kept while some group asks for it."""
