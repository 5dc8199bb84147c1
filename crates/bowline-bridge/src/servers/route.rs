//! Requests about one tool, prompt, resource or task, which go to its server.

use std::sync::Arc;

use bowline::exchange::Outcome;
use bowline::{ErrorCode, Json, RpcError};
use bowline_core::json::Object;
use serde_json::Value;

use super::front_request::{FrontRequest, Wait};
use super::set::ServerEntry;
use crate::config::{ItemKind, shortened};
use crate::many::{MAX_PAGES, PageCursor, RawObject, RoutedRequest, route_request, unknown_item};
use crate::modern::ModernCalls;
use crate::owned_task::OwnedTask;

impl FrontRequest {
    /// Sends a request to the server that it is about.
    pub(super) async fn route(self, modern: &ModernCalls) -> Outcome {
        let routed = match self.routed() {
            // A client may know a resource from before a restart, or from another replica.
            Err(error) if self.is_about_resource() && self.learn_resources().await => {
                self.routed().map_err(|_| error)?
            }
            routed => routed?,
        };
        let Some(routed) = routed else {
            return self.route_other(modern).await;
        };
        let unknown = || self.unknown(&routed);
        let entry = self.set.get(&routed.server).ok_or_else(unknown)?.clone();
        let access = &entry.settings().access;
        if !access.allows(routed.kind, &routed.name, &self.principal) {
            return Err(self.unknown(&routed));
        }
        if routed.kind == ItemKind::Tool {
            self.check_pins(&entry, &routed.name).await?;
        }
        self.send(modern, &entry, routed.params).await
    }

    fn routed(&self) -> Result<Option<RoutedRequest>, RpcError> {
        let (names, request) = (self.set.names(), &self.request);
        self.memory.with_routes(|routes| {
            let is_usable = |server: &str| self.is_usable(server);
            route_request(names, routes, &request.method, &request.params, is_usable)
        })
    }

    /// Returns the error that a name has which no server knows.
    fn unknown(&self, routed: &RoutedRequest) -> RpcError {
        let outer = match routed.kind {
            ItemKind::Tool | ItemKind::Prompt => {
                self.set.names().outer(&routed.server, &routed.name)
            }
            ItemKind::Resource | ItemKind::ResourceTemplate => Ok((&*routed.name).into()),
        };
        let outer = outer.unwrap_or_else(|_| (&*routed.name).into());
        unknown_item(routed.kind, &outer)
    }

    fn is_about_resource(&self) -> bool {
        let params = self.request.params.as_str();
        let is_completion = self.request.method == "completion/complete";
        self.request.method.starts_with("resources/")
            || (is_completion && params.contains("ref/resource"))
    }

    /// Lists the resources and templates of all servers that have not been listed. Returns whether there were any.
    pub(super) async fn learn_resources(&self) -> bool {
        let is_new = |entry: &&Arc<ServerEntry>| !self.memory.has_listed(entry, &self.principal);
        let requested: Vec<_> = self.usable().filter(is_new).cloned().collect();
        let has_new = !requested.is_empty();
        let requested: Vec<_> = requested
            .into_iter()
            .map(|entry| {
                let front = self.clone();
                OwnedTask::spawn(async move { front.learn_resources_of(&entry).await })
            })
            .collect();
        for requested in requested {
            if let Err(error) = requested.join().await {
                tracing::debug!(%error, "failed to list the resources of a server");
            }
        }
        has_new
    }

    async fn learn_resources_of(&self, entry: &Arc<ServerEntry>) -> Result<(), RpcError> {
        let listing = async {
            for kind in [ItemKind::Resource, ItemKind::ResourceTemplate] {
                self.list_all(entry, kind).await?;
            }
            Ok(())
        };
        let listed = listing.await;
        // Also after a failure: the next request must not wait for a server that hangs.
        self.memory.set_listed(entry, &self.principal);
        listed
    }

    /// Requests all pages of a server.
    async fn list_all(&self, entry: &Arc<ServerEntry>, kind: ItemKind) -> Result<(), RpcError> {
        let mut cursor: Option<String> = None;
        // A list without end must not keep a call for ever.
        for _ in 0..MAX_PAGES {
            let page = self.page(entry, kind, cursor.as_deref(), Wait::Whole);
            let Some(page) = page.await? else {
                return Ok(());
            };
            let next = RawObject::parse(page.as_str()).ok();
            let next = next.and_then(|page| Some(page.text("nextCursor")?.into_owned()));
            if next.is_none() || next == cursor {
                return Ok(());
            }
            cursor = next;
        }
        Ok(())
    }

    /// Checks that a tool has its pinned definition. The tools are listed before the first call.
    async fn check_pins(&self, entry: &Arc<ServerEntry>, tool: &str) -> Result<(), RpcError> {
        let Some(pins) = entry.pins() else {
            return Ok(());
        };
        // Opens the connection that the call will use: a process that was started again may have other tools.
        let lease = entry.upstream().lease(&self.request, &self.cx).await?;
        drop(lease);
        let opened = || entry.upstream().opened();
        if let Some(_listing) = pins.must_list(opened).await {
            self.list_all(entry, ItemKind::Tool).await?;
            pins.set_checked(opened());
        }
        pins.check_call(tool).await
    }

    /// Sends a request about a task, or one of a method that the bridge does not know.
    async fn route_other(self, modern: &ModernCalls) -> Outcome {
        match &*self.request.method {
            "tasks/list" => return self.list_tasks(modern).await,
            method if method.starts_with("tasks/") => {
                let (entry, params) = self.task_server()?;
                return self.send(modern, &entry, params).await;
            }
            _ => {}
        }
        let mut usable = self.usable();
        let (Some(entry), None) = (usable.next(), usable.next()) else {
            let method = shortened(&self.request.method);
            return Err(RpcError::new(
                ErrorCode::METHOD_NOT_FOUND,
                format!("method not found: `{method}` does not say which server it is for"),
            ));
        };
        let (entry, params) = (entry.clone(), Json::clone(&self.request.params));
        drop(usable);
        self.send(modern, &entry, params).await
    }

    /// Returns the server of a task, and the params with the id that it knows.
    fn task_server(&self) -> Result<(Arc<ServerEntry>, Json), RpcError> {
        let params = &self.request.params;
        let invalid = |why: &str| RpcError::new(ErrorCode::INVALID_PARAMS, why);
        let object = RawObject::parse(params.as_str()).map_err(RpcError::invalid_params)?;
        let outer = object.text("taskId");
        let outer = outer.ok_or_else(|| invalid("expected one member `taskId` with a text"))?;
        let found = self.task_ids().split(&outer);
        let found = found.filter(|(server, _)| self.is_usable(server));
        let found = found.and_then(|(server, id)| Some((self.set.get(server)?.clone(), id)));
        let (entry, id) = found.ok_or_else(|| invalid("task not found"))?;
        let mut text = Vec::with_capacity(params.as_bytes().len());
        object.write_with(&mut text, "taskId", id);
        Ok((entry, Json::from_valid(text.into())))
    }

    /// Answers the legacy `tasks/list` with a page of one server; the next page is of the same server or the next one.
    async fn list_tasks(&self, modern: &ModernCalls) -> Outcome {
        let generation = self.set.names().generation();
        let cursor = RawObject::parse(self.request.params.as_str()).ok();
        let cursor = cursor.and_then(|params| Some(params.text("cursor")?.into_owned()));
        let cursor = cursor.map(|text| PageCursor::decode(&text, generation));
        let mut cursor = cursor.transpose()?;
        let start = cursor.as_ref().map(|it| it.server().to_owned());
        let is_before = |entry: &&Arc<ServerEntry>| {
            let start = start.as_deref();
            start.is_some_and(|start| entry.name() != start)
        };
        let entries: Vec<_> = self.usable().skip_while(is_before).cloned().collect();
        let mut entries = entries.iter().peekable();
        while let Some(entry) = entries.next() {
            let inner = cursor.take().and_then(|it| it.cursor().map(str::to_owned));
            let page = self.task_page(modern, entry, inner.as_deref()).await;
            let Some((tasks, next)) = page else {
                continue;
            };
            let next_server = || entries.peek().map(|next| (next.name(), None));
            let next = next
                .map(|next| (entry.name(), Some(next)))
                .or_else(next_server);
            let next = next.map(|(server, next)| PageCursor::new(server, next, generation));
            let mut page = serde_json::json!({ "tasks": tasks });
            if let Some(next) = next {
                page["nextCursor"] = next.encode().into();
            }
            return Ok(page.into());
        }
        Ok(Json::from_static(r#"{"tasks":[]}"#))
    }

    /// Returns the tasks of a server and its cursor; `None` if it has no tasks, or cannot be reached.
    async fn task_page(
        &self,
        modern: &ModernCalls,
        entry: &Arc<ServerEntry>,
        cursor: Option<&str>,
    ) -> Option<(Vec<Value>, Option<String>)> {
        let mut object = Object::read(&self.request.params).ok()?;
        match cursor {
            Some(cursor) => object.set("cursor", Value::from(cursor).into()),
            None => drop(object.remove("cursor")),
        }
        let params = object.to_json();
        let limit = entry.settings().list_timeout;
        let answer = self.clone().send(modern, entry, params);
        let answer = tokio::time::timeout(limit, answer).await.ok()?.ok()?;
        let page = answer.decode::<TaskPage>().ok()?;
        Some((page.tasks, page.next_cursor))
    }

    /// Sends a request to a server, and converts its result.
    async fn send(
        mut self,
        modern: &ModernCalls,
        entry: &Arc<ServerEntry>,
        params: Json,
    ) -> Outcome {
        self.request.params = params.into();
        let (request, upstream) = (self.request.clone(), entry.upstream());
        // Boxed: it is large, and nested in the futures of this module.
        let result = Box::pin(modern.respond(upstream, request, &self.cx)).await?;
        let (server, method) = (entry.name(), &*self.request.method);
        if matches!(method, "tools/call" | "prompts/get") {
            self.memory.learn_links(server, &result);
        }
        Ok(self.task_ids().convert_result(server, method, result))
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskPage {
    #[serde(default)]
    tasks: Vec<Value>,
    next_cursor: Option<String>,
}
