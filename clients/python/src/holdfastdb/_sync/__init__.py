"""The client without asyncio."""
