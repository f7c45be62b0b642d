"""Written English → the phoneme tokens Wren reads: markup → words → IPA → tokens."""
