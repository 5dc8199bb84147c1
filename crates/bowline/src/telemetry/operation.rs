//! [`Operation`], what telemetry knows about a request before it is answered.

use std::borrow::Cow;
use std::sync::Arc;

use bowline_core::era::{Dialect, Request};
use bowline_core::json::Params;
use bowline_core::{Notification, shortened};
use bowline_types::{
    CallToolRequest, DiscoverRequest, GetPromptRequest, Json, Method, ReadResourceRequest,
};

use super::TransportKind;

/// A request or notification, as telemetry describes it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) method: Cow<'static, str>,
    pub(crate) target: Target,
    /// The protocol version.
    pub(crate) version: &'static str,
    pub(crate) transport: TransportKind,
    /// The version of HTTP, where it is known.
    pub(crate) http_version: Option<&'static str>,
    /// The server that a client connects to.
    pub(crate) address: Option<Arc<ServerAddress>>,
}

/// What an operation is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    None,
    Tool(Arc<str>),
    Prompt(Arc<str>),
    /// The URI of a resource.
    Resource(Arc<str>),
}

/// The host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

impl Operation {
    pub(crate) fn of_request(request: &Request, transport: TransportKind) -> Self {
        let dialect = request.caller.dialect;
        Self {
            method: wire_method(&request.method, dialect),
            target: Target::of(&request.method, &request.params),
            version: dialect.version,
            transport,
            http_version: None,
            address: None,
        }
    }

    pub(crate) fn of_notification(
        notification: &Notification,
        dialect: &'static Dialect,
        transport: TransportKind,
    ) -> Self {
        let uri = notification
            .params
            .as_ref()
            .filter(|_| notification.method == "notifications/resources/updated");
        let target =
            uri.and_then(|params| text_of(Params::from(params.clone()).member("uri").ok()??));
        Self {
            method: bounded(&notification.method),
            target: target.map_or(Target::None, Target::Resource),
            version: dialect.version,
            transport,
            http_version: None,
            address: None,
        }
    }
}

impl Target {
    fn of(method: &str, params: &Params) -> Self {
        let member = |name| params.member(name).ok().flatten().and_then(text_of);
        let target = match method {
            CallToolRequest::NAME => member("name").map(Self::Tool),
            GetPromptRequest::NAME => member("name").map(Self::Prompt),
            ReadResourceRequest::NAME | "resources/subscribe" | "resources/unsubscribe" => {
                member("uri").map(Self::Resource)
            }
            _ => None,
        };
        target.unwrap_or(Self::None)
    }

    pub(crate) fn tool(&self) -> Option<&Arc<str>> {
        match self {
            Self::Tool(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn prompt(&self) -> Option<&Arc<str>> {
        match self {
            Self::Prompt(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn resource(&self) -> Option<&Arc<str>> {
        match self {
            Self::Resource(uri) => Some(uri),
            _ => None,
        }
    }
}

/// Returns the name of the method on the wire: `initialize` is `server/discover` in the internal form.
#[allow(clippy::ptr_arg, reason = "a static text is not copied")]
fn wire_method(method: &Cow<'static, str>, dialect: &Dialect) -> Cow<'static, str> {
    if *method == DiscoverRequest::NAME && !dialect.is_modern() {
        return Cow::Borrowed("initialize");
    }
    bounded(method)
}

/// Returns the method, truncated: its length is decided by the peer.
#[allow(clippy::ptr_arg, reason = "a static text is not copied")]
fn bounded(method: &Cow<'static, str>) -> Cow<'static, str> {
    match method {
        Cow::Borrowed(method) => Cow::Borrowed(method),
        Cow::Owned(method) => Cow::Owned(shortened(method).to_string()),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "passed to `and_then`")]
fn text_of(json: Json) -> Option<Arc<str>> {
    let text = json.text().ok()?;
    if text.len() <= MAX_NAME {
        return Some(text.into());
    }
    Some(shortened(text).to_string().into())
}

/// Longer names are truncated.
const MAX_NAME: usize = 256;
