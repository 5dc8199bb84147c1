//! The server side of the extension `io.modelcontextprotocol/tasks`: [`Tasks`], and the [`TaskSettings`] of a tool.

mod settings;
pub use settings::TaskSettings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{BoxFuture, Context, Outcome, Request};
use bowline::server::{ExtensionMethod, ServerExtension};
use bowline_types::{ErrorCode, RpcError};

use crate::protocol::{CANCEL_METHOD, EXTENSION_ID, GET_METHOD, UPDATE_METHOD};
use crate::store::{MemoryStore, TaskStore};

/// The tasks extension of a server.
pub struct Tasks {
    store: Arc<dyn TaskStore>,
    options: Options,
}

/// The settings of [`Tasks`].
#[derive(Clone, Copy, Debug)]
struct Options {
    ttl: Option<Duration>,
    max_ttl: Duration,
    poll_interval: Duration,
    removal_delay: Duration,
    lease: Duration,
    renew_every: Duration,
    task_after: Option<Duration>,
}

impl Tasks {
    /// Creates the extension with tasks in `store`.
    pub fn new(store: impl TaskStore) -> Self {
        Self {
            store: Arc::new(store),
            options: Options {
                ttl: Some(Duration::from_secs(60 * 60)),
                max_ttl: Duration::from_secs(24 * 60 * 60),
                poll_interval: Duration::from_secs(1),
                removal_delay: Duration::from_secs(60),
                lease: Duration::from_secs(6),
                renew_every: Duration::from_secs(2),
                task_after: None,
            },
        }
    }

    /// Creates the extension with tasks in memory, which end with the process.
    pub fn in_memory() -> Self {
        Self::new(MemoryStore::new())
    }
}

impl ServerExtension for Tasks {
    fn id(&self) -> &str {
        EXTENSION_ID
    }

    fn methods(&self) -> Vec<ExtensionMethod> {
        let names = [GET_METHOD, UPDATE_METHOD, CANCEL_METHOD];
        let method = |name| ExtensionMethod::new(name).name_member("taskId");
        names.map(method).into()
    }

    fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async { Err(RpcError::new(ErrorCode::INTERNAL_ERROR, "not implemented")) })
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
