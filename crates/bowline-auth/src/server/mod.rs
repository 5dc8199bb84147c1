//! How a server checks tokens, and says which ones it wants.
