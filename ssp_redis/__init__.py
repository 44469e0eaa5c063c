"""Clock coordination on Redis for stale synchronous parallel work, with a shared parameter store."""
