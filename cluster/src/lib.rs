//! Three replicas behind a proxy, on real engines: what tests and reports of clusters share.
//!
//! ```text
//! client ──▶ RoundRobinProxy ──▶ replica 1 ─┐
//!                            ├─▶ replica 2 ─┼─▶ engine (`cargo xtask cluster` starts it)
//!                            └─▶ replica 3 ─┘
//! ```

mod engine;
pub use engine::{Engine, EngineConnection};

mod proxy;
pub use proxy::{RoundRobinProxy, Stickiness};
