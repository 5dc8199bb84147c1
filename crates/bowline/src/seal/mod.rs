//! Encrypted texts that a server gives to another party and later accepts back: [`Sealer`].
//!
//! ```text
//! text            = base64url( version ‖ nonce ‖ ciphertext )
//! plaintext       = expiry in seconds ‖ content
//! associated data = version ‖ purpose ‖ bound bytes
//! ```
//!
//! A sealed text cannot be read or changed, and opens only for the [`Purpose`] and the bound bytes that it was sealed
//! with, until it expires. The bound bytes are not part of the text: both sides of its life know them, such as the
//! principal of a request. A modified text, another purpose, other bound bytes and another key all fail the
//! authentication of the ciphertext, with the same error.

mod binding;
pub use binding::Binding;

mod purpose;
pub use purpose::Purpose;

mod sealer;
pub use sealer::{SealError, Sealer};
