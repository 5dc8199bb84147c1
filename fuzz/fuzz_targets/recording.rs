//! A recording, and everything that reads one.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_fuzz::recording);
