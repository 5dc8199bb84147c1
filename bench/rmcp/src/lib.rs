//! The server under test, as users of rmcp write one.

mod by_hand;
pub use by_hand::ByHand;

mod by_macros;
pub use by_macros::ByMacros;
