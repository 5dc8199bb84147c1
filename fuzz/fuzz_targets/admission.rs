//! Admission of a complete HTTP request.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_fuzz::admission);
