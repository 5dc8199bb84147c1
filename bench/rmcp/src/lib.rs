//! The server under test, in two styles of rmcp.

mod macro_handler;
pub use macro_handler::MacroHandler;

mod manual_handler;
pub use manual_handler::ManualHandler;
