//! Both ends of plain HTTP, for scenarios about one of our own: what it says is looked at byte by byte, or made up.

mod plain;
pub use plain::{Heard, Plain, Posting};

mod script;
pub use script::{Arrived, Say, Script, greeting, manners};
