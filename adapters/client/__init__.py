"""An ACP v2 client: keys, an outbox that resends safely, and a picture of each session. Uses `adapters.acp` only."""
