//! [`ToolSupport`]: whether a server has tasks, and which tools of a legacy server can be called as tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::Json;
use bowline::client::Connection;
use bowline::exchange::{Caller, Channel, Request};
use bowline::types::legacy_tasks::TaskSupport;
use serde_json::json;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::{DISCOVER, LIST_TOOLS, forms, options};
use crate::forward::result_of;

/// Whether the server of a connection has tasks, and which tools can be called as tasks.
#[derive(Default)]
pub(crate) struct ToolSupport {
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
        let discover = async || {
            let offered = match connection.introduction() {
                Some(introduction) => introduction.clone(),
                // The version of the connection was configured, so the server was not asked for it.
                None => {
                    let request = Request::new(DISCOVER, Json::empty_object(), caller.clone());
                    result_of(connection.open(request, options()).answer().await?)
                }
            };
            let offered = forms::member(&offered, "capabilities");
            let has_tasks = |offered| forms::offers_tasks(&offered, connection.dialect());
            Ok::<_, bowline::Error>(offered.is_some_and(has_tasks))
        };
        match self.has_tasks.get_or_try_init(discover).await {
            Ok(has_tasks) => *has_tasks,
            Err(error) => {
                tracing::debug!(%error, "failed to ask an upstream for its capabilities");
                false
            }
        }
    }

    /// Returns the support of a tool.
    pub(super) async fn of(
        &self,
        tool: &str,
        connection: &Connection,
        caller: &Arc<Caller>,
    ) -> TaskSupport {
        // Held while the tools are listed, so that calls at the same time list them once.
        let mut known = self.known.lock().await;
        let is_recent = |known: &Known| known.since.elapsed() < RELIST_INTERVAL;
        if !known.as_ref().is_some_and(is_recent) {
            let listed = tokio::time::timeout(LIST_TIMEOUT, list(connection, caller)).await;
            // A server that cannot list its tools is not asked again for each call.
            *known = Some(Known {
                by_tool: listed.unwrap_or_default(),
                since: Instant::now(),
            });
        }
        let support = known.as_ref().and_then(|known| known.by_tool.get(tool));
        support.copied().unwrap_or(TaskSupport::Forbidden)
    }

    /// Forgets what is known, because the server refused a call that follows it.
    pub(super) async fn forget(&self) {
        *self.known.lock().await = None;
    }
}

async fn list(connection: &Connection, caller: &Arc<Caller>) -> BTreeMap<String, TaskSupport> {
    let mut by_tool = BTreeMap::new();
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
        by_tool.extend(forms::task_support(&page));
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
