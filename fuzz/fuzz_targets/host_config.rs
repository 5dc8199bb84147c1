//! A configuration file of a host, in each format.

#![cfg_attr(fuzzing, no_main)]

bowline_fuzz::target!(bowline_cli::fuzzing::host_config);
