//! [`ToolSupport`]: whether a server has tasks, and which tools of a legacy server can be called as tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::client::Connection;
use bowline::exchange::{Caller, Channel, Request};
use bowline::types::legacy_tasks::TaskSupport;
use bowline::{Error, Json};
use serde_json::json;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::{DISCOVER, LIST_TOOLS, forms, options};
use crate::forward::result_of;
use crate::owned_task::OwnedTask;

/// Whether the server of a connection has tasks, and which tools can be called as tasks. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct ToolSupport(Arc<ToolSupportState>);

#[derive(Default)]
struct ToolSupportState {
    has_tasks: OnceCell<bool>,
    /// Listed when the first call needs it, and again after a while, because the list may change.
    known: Mutex<Option<Known>>,
}

struct Known {
    /// Without tools that cannot be called as tasks.
    by_tool: BTreeMap<String, TaskSupport>,
    since: Instant,
}

impl ToolSupport {
    /// Returns whether the server says that tools can be called as tasks, in the form of its version.
    pub(super) async fn has_tasks(&self, connection: &Connection, caller: &Arc<Caller>) -> bool {
        if let Some(has_tasks) = self.0.has_tasks.get() {
            return *has_tasks;
        }
        let (state, connection, caller) = (self.0.clone(), connection.clone(), caller.clone());
        let asking = async move {
            let discover = || discover(&connection, &caller);
            Ok(state.has_tasks.get_or_try_init(discover).await.copied())
        };
        match OwnedTask::spawn(asking).join().await {
            Ok(Ok(has_tasks)) => has_tasks,
            Ok(Err(error)) => {
                tracing::debug!(%error, "failed to ask an upstream for its capabilities");
                false
            }
            Err(_) => false, // the runtime is shutting down
        }
    }

    /// Returns the support of a tool.
    pub(super) async fn of(
        &self,
        tool: &str,
        connection: &Connection,
        caller: &Arc<Caller>,
    ) -> TaskSupport {
        let known = self.0.known.try_lock();
        if let Some(known) = known.ok().as_deref().and_then(Option::as_ref)
            && known.is_recent()
        {
            return known.of(tool);
        }
        let (state, tool) = (self.0.clone(), tool.to_owned());
        let (connection, caller) = (connection.clone(), caller.clone());
        let listing = async move {
            // Held while the tools are listed, so that calls at the same time list them once.
            let mut known = state.known.lock().await;
            if !known.as_ref().is_some_and(Known::is_recent) {
                let listed = tokio::time::timeout(LIST_TIMEOUT, list(&connection, &caller)).await;
                // A server that cannot list its tools is not asked again for each call.
                *known = Some(Known {
                    by_tool: listed.unwrap_or_default(),
                    since: Instant::now(),
                });
            }
            Ok(known.as_ref().map(|known| known.of(&tool)))
        };
        let support = OwnedTask::spawn(listing).join().await;
        support.ok().flatten().unwrap_or(TaskSupport::Forbidden)
    }

    /// Forgets what is known, because the server refused a call that follows it.
    pub(super) async fn forget(&self) {
        *self.0.known.lock().await = None;
    }
}

impl Known {
    fn is_recent(&self) -> bool {
        self.since.elapsed() < RELIST_INTERVAL
    }

    fn of(&self, tool: &str) -> TaskSupport {
        let support = self.by_tool.get(tool).copied();
        support.unwrap_or(TaskSupport::Forbidden)
    }
}

async fn discover(connection: &Connection, caller: &Arc<Caller>) -> Result<bool, Error> {
    let offered = match connection.introduction() {
        Some(introduction) => introduction.clone(),
        // The version of the connection was configured, so the server was not asked for it.
        None => {
            let request = Request::new(DISCOVER, Json::empty_object(), caller.clone());
            result_of(connection.open(request, options()).answer().await?)
        }
    };
    let offered = forms::member(&offered, "capabilities");
    Ok(offered.is_some_and(|offered| forms::offers_tasks(&offered, connection.dialect())))
}

async fn list(connection: &Connection, caller: &Arc<Caller>) -> BTreeMap<String, TaskSupport> {
    let (mut by_tool, mut bytes) = (BTreeMap::new(), 0);
    let mut params = Json::empty_object();
    for _ in 0..MAX_PAGES {
        let request = Request::new(LIST_TOOLS, params, caller.clone());
        let page = match connection.open(request, options()).answer().await {
            Ok(answer) => result_of(answer),
            Err(error) => {
                tracing::debug!(%error, "failed to list the tools of an upstream that has tasks");
                break;
            }
        };
        for (tool, support) in forms::task_support(&page) {
            bytes += tool.len();
            if bytes > MAX_NAME_BYTES {
                return by_tool;
            }
            by_tool.insert(tool, support);
        }
        let next = forms::member(&page, "nextCursor").filter(|cursor| !cursor.is_null());
        match next.and_then(|cursor| cursor.decode::<String>().ok()) {
            Some(cursor) if by_tool.len() < MAX_TOOLS => params = json!({"cursor": cursor}).into(),
            _ => break,
        }
    }
    by_tool
}

const RELIST_INTERVAL: Duration = Duration::from_secs(60);
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 10_000;
/// The names of all tools together. A tool that is not known is not called as a task.
const MAX_NAME_BYTES: usize = 1024 * 1024;
