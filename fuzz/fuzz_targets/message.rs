//! One message of a line, an event or a body.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_fuzz::message);
