//! A stream of server-sent events, split where the input specifies.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_fuzz::sse);
