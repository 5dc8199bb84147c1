//! JSON text, and scripts for the JSON generator.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_fuzz::json);
