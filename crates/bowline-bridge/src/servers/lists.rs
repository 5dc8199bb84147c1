//! Merged lists: pages of several servers, requested at the same time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bowline::exchange::{Outcome, Request};
use bowline::{ErrorCode, Json, RpcError};
use bowline_core::json::Object;
use bowline_types::{
    ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method,
};
use serde_json::Value;

use super::front_request::{FrontRequest, Wait};
use super::patience::Awaited;
use super::set::ServerEntry;
use crate::config::{ItemKind, StalePolicy};
use crate::forward::forward;
use crate::many::{MatchBudget, PageMerger};
use crate::owned_task::OwnedTask;
use crate::pins::Pins;
use crate::tasks;

/// Returns what a method lists.
pub(super) fn kind_of(method: &str) -> Option<ItemKind> {
    KINDS
        .into_iter()
        .find_map(|(list, kind)| (list == method).then_some(kind))
}

fn method_of(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => ListToolsRequest::NAME,
        ItemKind::Prompt => ListPromptsRequest::NAME,
        ItemKind::Resource => ListResourcesRequest::NAME,
        ItemKind::ResourceTemplate => ListResourceTemplatesRequest::NAME,
    }
}

/// A page of a server; `None` if the server has no such list.
type Page = Result<Option<Json>, RpcError>;

impl FrontRequest {
    /// Answers a list with one page of the servers' lists.
    pub(super) async fn list(&self, kind: ItemKind) -> Outcome {
        let cursor = self.request.params.member("cursor");
        let cursor = cursor.map_err(RpcError::invalid_params)?;
        let cursor = cursor.filter(|cursor| !cursor.is_null());
        let cursor: Option<String> = cursor
            .map(|cursor| cursor.decode())
            .transpose()
            .map_err(RpcError::invalid_params)?;
        let servers = self.usable().map(|entry| entry.name());
        let mut merger = PageMerger::new(self.set.names(), kind, servers, cursor.as_deref())?;
        let mut requested = RequestedPages::default();
        while let Some(position) = merger.position() {
            let (server, cursor) = (position.server().to_owned(), position.cursor());
            let cursor = cursor.map(str::to_owned);
            let Some(entry) = self.set.get(&server) else {
                merger.skip();
                continue;
            };
            let page = match &cursor {
                Some(cursor) => self.page(entry, kind, Some(cursor), Wait::Brief).await,
                None => {
                    let upcoming = merger.upcoming().filter_map(|it| self.set.get(it));
                    requested.request(self, kind, std::iter::once(entry).chain(upcoming));
                    requested.take(&server).await
                }
            };
            self.add_page(&mut merger, entry, kind, cursor.as_deref(), page)
                .await?;
        }
        for refused in merger.refused() {
            tracing::warn!(%refused, "a name of a server cannot be offered");
        }
        if self.is_private() {
            merger.set_private();
        }
        Ok(merger.finish())
    }

    async fn add_page(
        &self,
        merger: &mut PageMerger<'_>,
        entry: &ServerEntry,
        kind: ItemKind,
        cursor: Option<&str>,
        page: Page,
    ) -> Result<(), RpcError> {
        let error = match page {
            Ok(Some(page)) => {
                let pins = self.pins_for(entry, kind).await;
                let mut budget = MatchBudget::for_list();
                let keep =
                    |name: &str| self.offers(entry, kind, name, pins.as_deref(), &mut budget);
                match merger.add_page(&page, keep) {
                    Ok(()) => return Ok(()),
                    Err(error) => RpcError::internal(error.to_string()),
                }
            }
            Ok(None) => {
                merger.skip_unsupported();
                return Ok(());
            }
            // The server does not know its cursor any more: the client has to start again.
            Err(error) if cursor.is_some() && error.code == ErrorCode::INVALID_PARAMS => {
                return Err(error);
            }
            Err(error) => error,
        };
        entry.log_missing("list", &error);
        let stale = match entry.settings().stale {
            StalePolicy::Show => {
                let (memory, principal) = (&self.memory, &self.principal);
                memory.last_list(entry.name(), kind, principal, cursor)
            }
            StalePolicy::Omit => None,
        };
        let pins = self.pins_for(entry, kind).await;
        let mut budget = MatchBudget::for_list();
        let keep = |name: &str| self.offers(entry, kind, name, pins.as_deref(), &mut budget);
        if stale.is_none_or(|stale| merger.add_stale(&stale, keep).is_err()) {
            merger.skip();
        }
        Ok(())
    }

    /// Requests a page of one server, and learns from it. Pins are checked.
    pub(super) async fn page(
        &self,
        entry: &Arc<ServerEntry>,
        kind: ItemKind,
        cursor: Option<&str>,
        wait: Wait,
    ) -> Page {
        let limit = entry.settings().list_timeout;
        let connecting = self.connect(entry);
        self.wait_for(entry, Awaited::Connection, wait, limit, connecting)
            .await?;
        if !entry.may_have(kind, &entry.owner(&self.principal)) {
            return Ok(None);
        }
        let requested = self.request_page(entry, kind, cursor);
        let page = self.wait_for(entry, Awaited::List(kind), wait, limit, requested);
        let page = page.await?;
        if let Some(page) = &page {
            let (memory, principal) = (&self.memory, &self.principal);
            memory.learn_page(entry.name(), kind, principal, cursor, page);
            if let Some(pins) = entry.pins().filter(|_| kind == ItemKind::Tool) {
                pins.check_page(cursor, page).await;
            }
        }
        Ok(page)
    }

    async fn request_page(
        &self,
        entry: &Arc<ServerEntry>,
        kind: ItemKind,
        cursor: Option<&str>,
    ) -> Page {
        let params = with_cursor(&self.request.params, cursor);
        // Without the progress token: the progress of several servers would not increase.
        let request = Request::new(method_of(kind), params, self.request.caller.clone());
        let responding = tasks::respond(entry.upstream(), request, &self.cx);
        let outcome = match Box::pin(responding).await {
            ControlFlow::Continue(request) => {
                Box::pin(forward(entry.upstream(), request, &self.cx)).await
            }
            ControlFlow::Break(outcome) => outcome,
        };
        match outcome {
            Err(error) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    async fn pins_for<'e>(
        &self,
        entry: &'e ServerEntry,
        kind: ItemKind,
    ) -> Option<tokio::sync::MutexGuard<'e, Pins>> {
        let pins = entry.pins().filter(|_| kind == ItemKind::Tool)?;
        Some(pins.lock().await)
    }

    /// Returns whether the client may see an item of a server.
    fn offers(
        &self,
        entry: &ServerEntry,
        kind: ItemKind,
        name: &str,
        pins: Option<&Pins>,
        budget: &mut MatchBudget,
    ) -> bool {
        let server = entry.name();
        let access = &entry.settings().access;
        // A resource that requests do not reach is another one for the client.
        let is_reached = match kind {
            ItemKind::Tool | ItemKind::Prompt => true,
            ItemKind::Resource => self.memory.with_routes(|routes| {
                let found = routes.route_within(name, |it| self.is_usable(it), budget);
                found == Some(server)
            }),
            ItemKind::ResourceTemplate => self.memory.with_routes(|routes| {
                routes.template_server(name, |it| self.is_usable(it)) == Some(server)
            }),
        };
        is_reached
            && access.allows(kind, name, &self.principal)
            && pins.is_none_or(|pins| pins.is_offered(server, name))
    }
}

/// First pages that were requested ahead.
#[derive(Default)]
struct RequestedPages(BTreeMap<String, OwnedTask<Option<Json>>>);

impl RequestedPages {
    fn request<'a>(
        &mut self,
        front: &FrontRequest,
        kind: ItemKind,
        entries: impl Iterator<Item = &'a Arc<ServerEntry>>,
    ) {
        for entry in entries {
            if !self.0.contains_key(entry.name()) {
                let (front, requested) = (front.clone(), entry.clone());
                let page = async move { front.page(&requested, kind, None, Wait::Brief).await };
                self.0
                    .insert(entry.name().to_owned(), OwnedTask::spawn(page));
            }
        }
    }

    async fn take(&mut self, server: &str) -> Page {
        match self.0.remove(server) {
            Some(requested) => requested.join().await,
            None => Ok(None),
        }
    }
}

/// Returns the params of a list with the cursor of a server.
fn with_cursor(params: &Json, cursor: Option<&str>) -> Json {
    let Ok(mut object) = Object::read(params) else {
        return params.clone();
    };
    match cursor {
        Some(cursor) => object.set("cursor", Value::from(cursor).into()),
        None => drop(object.remove("cursor")),
    }
    object.to_json()
}

const KINDS: [(&str, ItemKind); 4] = [
    (ListToolsRequest::NAME, ItemKind::Tool),
    (ListPromptsRequest::NAME, ItemKind::Prompt),
    (ListResourcesRequest::NAME, ItemKind::Resource),
    (
        ListResourceTemplatesRequest::NAME,
        ItemKind::ResourceTemplate,
    ),
];
