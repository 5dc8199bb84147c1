//! Two connected muxes, driven by a list of operations.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_fuzz::mux);
