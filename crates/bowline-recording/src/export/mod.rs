//! Exports of a recording to formats of other programs.

mod har;
pub use har::to_har;

mod otlp;
pub use otlp::to_otlp;
