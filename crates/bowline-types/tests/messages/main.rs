//! Example messages: each is decoded into its type and encoded again to the same JSON.
//!
//! `golden` holds our own, one folder per definition of the specification, and always runs. `official` holds
//! the specification's own examples against our types, and our examples against its schemas; it runs if
//! `BOWLINE_SPEC` names a folder that has them.

#[cfg(test)]
mod golden;
#[cfg(test)]
mod official;
#[cfg(test)]
mod registry;
