//! The vocabulary of the Model Context Protocol: every message of every revision as a plain type.
//!
//! No behaviour lives here beyond encoding and decoding.

mod json;
pub use json::Json;

mod id;
pub use id::{ProgressToken, RequestId};

mod error;
pub use error::{ErrorCode, RpcError};
