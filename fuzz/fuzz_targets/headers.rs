//! Encoding and decoding of header values.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_fuzz::headers);
