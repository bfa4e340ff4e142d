"""The wire shapes. Each dialect says how a fitted payload and the facts about it look to a client."""
