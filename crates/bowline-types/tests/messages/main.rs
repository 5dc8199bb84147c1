//! Example messages: each is decoded into its type and encoded again to the same JSON.
//!
//! `golden` tests our own examples, one folder per definition of the specification, and always runs.
//! `official` tests the specification's examples with our types, and our examples with its schemas; it runs
//! if `BOWLINE_SPEC` names a folder with both.

#[cfg(test)]
mod golden;
#[cfg(test)]
mod official;
#[cfg(test)]
mod registry;
