//! The merged `server/discover`.

use std::time::Duration;

use bowline::exchange::{Dialects, Outcome};
use bowline::{Json, RpcError};
use bowline_core::json::Object;
use bowline_types::{Implementation, Meta};

use super::front_request::{FrontRequest, Wait};
use super::introductions::Introduction;
use super::patience::Awaited;
use super::set::ServerEntry;
use crate::config::{ParkedCallForm, StalePolicy};
use crate::many::merge_introductions;
use crate::owned_task::OwnedTask;
use crate::tasks;

impl FrontRequest {
    /// Answers with what all servers say about themselves. One that does not answer in time is taken as it last was, or
    /// may have everything.
    pub(super) async fn discover(
        &self,
        identity: &Implementation,
        versions: &Dialects,
        parked_calls: ParkedCallForm,
    ) -> Outcome {
        let requested: Vec<_> = self
            .usable()
            .map(|entry| {
                let (front, requested) = (self.clone(), entry.clone());
                let limit = self.handshake_limit(entry);
                let connected = async move {
                    let (awaited, connecting) = (Awaited::Connection, front.connect(&requested));
                    front
                        .wait_for(&requested, awaited, Wait::Brief, limit, connecting)
                        .await
                };
                (entry, OwnedTask::spawn(connected))
            })
            .collect();
        let mut is_complete = true;
        let mut parts = Vec::with_capacity(requested.len());
        for (entry, connected) in requested {
            let connected = connected.join().await;
            if let Err(error) = &connected {
                entry.log_missing("handshake", error);
            }
            is_complete &= connected.is_ok();
            let shows = connected.is_ok() || entry.settings().stale == StalePolicy::Show;
            let owner = entry.owner(&self.principal);
            let introduction = entry.introductions().get(&owner);
            let introduction = introduction.filter(|_| shows);
            let part = introduction.map(|it| self.converted(&it, parked_calls));
            let part = part.unwrap_or_else(|| Json::from_static(UNKNOWN));
            parts.push((entry.name(), part));
        }
        let parts = parts.iter().map(|(server, part)| (*server, part));
        let instructions = self.set.config().settings().instructions.as_deref();
        let merged = merge_introductions(self.set.names(), parts, &[], instructions);
        self.finish_introduction(&merged, is_complete, identity, versions)
    }

    /// Returns how long the handshake waits for a server. A legacy client waits longer, and is not told again what a
    /// server has that started too late.
    fn handshake_limit(&self, entry: &ServerEntry) -> Duration {
        let settings = entry.settings();
        let limit = settings.list_timeout.min(settings.connect_timeout);
        match self.request.caller.dialect.is_modern() {
            true => limit.min(PROBE_WAIT),
            false => limit,
        }
    }

    /// Returns what a server says about itself, with its tasks in the form of the client's version.
    fn converted(&self, introduction: &Introduction, parked_calls: ParkedCallForm) -> Json {
        let Ok(mut object) = Object::read(&introduction.result) else {
            return introduction.result.clone();
        };
        let client = self.request.caller.dialect;
        tasks::convert_offer(&mut object, introduction.dialect, client, parked_calls);
        object.to_json()
    }

    fn finish_introduction(
        &self,
        merged: &Json,
        is_complete: bool,
        identity: &Implementation,
        versions: &Dialects,
    ) -> Outcome {
        let mut object =
            Object::read(merged).map_err(|error| RpcError::internal(error.to_string()))?;
        let versions: Vec<_> = versions.iter().map(|dialect| dialect.version).collect();
        if let Ok(versions) = Json::encode(&versions) {
            object.set("supportedVersions", versions);
        }
        if let Some(capabilities) = object.member("capabilities") {
            let capabilities = with_list_changes(capabilities);
            object.set("capabilities", capabilities);
        }
        let mut meta = Meta::default();
        meta.set_server_info(identity);
        if let Ok(meta) = Json::encode(&meta) {
            object.set("_meta", meta);
        }
        if !is_complete {
            object.set("ttlMs", Json::from_static("0"));
        }
        if !is_complete || self.is_private() {
            object.set("cacheScope", Json::from_static("\"private\""));
        }
        Ok(object.to_json())
    }
}

/// Declares changes of every list: a reload changes lists of servers that never do.
fn with_list_changes(capabilities: &Json) -> Json {
    let Ok(mut object) = Object::read(capabilities) else {
        return capabilities.clone();
    };
    for list in ["tools", "prompts", "resources"] {
        let Some(declared) = object.member(list).cloned() else {
            continue;
        };
        if let Ok(mut declared) = Object::read(&declared) {
            declared.set("listChanged", Json::from_static("true"));
            object.set(list, declared.to_json());
        }
    }
    object.to_json()
}

/// Clients give a server five seconds to answer the probe of its version.
const PROBE_WAIT: Duration = Duration::from_secs(2);

/// What a server may have that was never reached. A legacy client is told once, and the server may come later.
const UNKNOWN: &str = r#"{"capabilities":{"tools":{},"prompts":{},"resources":{}}}"#;
