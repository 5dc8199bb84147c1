//! The legacy era: versions and capabilities are negotiated once, by `initialize`.
//!
//! [`Session`] is the server's state of a legacy client; it supplies the [`Caller`] of later requests. [`Adapter`]
//! converts messages to and from the wire form of one legacy dialect.
//!
//! ```text
//! (none) ── initialize ──▶ Initializing ── notifications/initialized ──▶ Ready
//!                             │  ▲                                         │
//!                             └──┴─────────────── initialize ──────────────┘
//! ```
//!
//! `initialize` is accepted at any time: a gateway may have one server process for all its clients, and forward the
//! handshake of each.
//!
//! `legacy_disabled.rs` can replace this file, which proves that no other code depends on it.

mod adapter;
pub use adapter::Adapter;

mod converter;

use std::sync::Arc;

use bowline_types::{InitializeRequestParams, Json, LoggingLevel, SetLevelRequestParams};
use serde::Deserialize;

use super::modern::{self, EnvelopeMembers};
use super::request::check_caller_text;
use super::{
    Caller, DeclaredFeatures, Dialect, Dialects, LegacyFeatures, NotificationAction, Rejection,
    Request, RequestAction, Seal,
};
use crate::json::Params;
use crate::{Notification, RawRequest, shortened};

/// The era of a wire.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the set of eras is closed")]
pub enum Era {
    /// Each request carries its envelope; unsolicited messages are not allowed.
    Modern,
    /// `initialize` was received. Modern requests are still admitted.
    Legacy(Session),
}

/// The server's state of one legacy client.
#[derive(Clone, Debug)]
pub struct Session {
    caller: Arc<Caller>,
    stage: HandshakeStage,
    features: DeclaredFeatures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStage {
    /// `initialize` was admitted; the client has not accepted the result yet.
    Initializing,
    Ready,
}

/// Admits a request without a modern envelope before `initialize`.
///
/// # Errors
///
/// If it is neither `initialize` nor `ping`, or if no legacy version is served.
pub fn admit_before_initialize(
    raw: &RawRequest,
    served: &Dialects,
) -> Result<(Era, RequestAction), Rejection> {
    match &*raw.method {
        "initialize" => {
            let features = DeclaredFeatures::default();
            let (caller, action) = admit_initialize(raw, served, &features, None)?;
            let session = Session {
                caller,
                stage: HandshakeStage::Initializing,
                features,
            };
            Ok((Era::Legacy(session), action))
        }
        "ping" if served.latest_legacy().is_some() => {
            Ok((Era::Modern, RequestAction::Respond(Json::empty_object())))
        }
        _ => Err(modern::missing_envelope(served)),
    }
}

impl Session {
    /// Creates the state of a client that never sent `initialize`, of which only the version is known. `features` are
    /// those that the server would declare.
    #[must_use]
    pub fn without_handshake(dialect: &'static Dialect, features: LegacyFeatures) -> Self {
        Self {
            caller: Arc::new(Caller::new(dialect)),
            stage: HandshakeStage::Ready,
            features: features.into(),
        }
    }

    /// Creates the state of a client whose handshake another process has completed. `features` are those that the
    /// result of its `initialize` declared.
    #[must_use]
    pub fn after_handshake(caller: Caller, features: LegacyFeatures) -> Self {
        Self {
            caller: Arc::new(caller),
            stage: HandshakeStage::Ready,
            features: features.into(),
        }
    }

    /// Returns the caller, with the current log level.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Returns whether `notifications/initialized` was received; before, only pings and log messages may be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.stage == HandshakeStage::Ready
    }

    /// Admits a request.
    ///
    /// Another `initialize` negotiates again, and replaces the caller of later requests. Requests that were admitted
    /// before keep theirs, and the log level stays. One that is refused changes nothing.
    ///
    /// # Errors
    ///
    /// If the request is malformed, or its method is not defined in this version or not offered by the server.
    pub fn admit(
        &mut self,
        raw: RawRequest,
        served: &Dialects,
    ) -> Result<RequestAction, Rejection> {
        match &*raw.method {
            "initialize" => {
                let features = DeclaredFeatures::default();
                let level = self.caller.log_level;
                let (caller, action) = admit_initialize(&raw, served, &features, level)?;
                (self.caller, self.features) = (caller, features);
                self.stage = HandshakeStage::Initializing;
                Ok(action)
            }
            "ping" => Ok(RequestAction::Respond(Json::empty_object())),
            "logging/setLevel" if self.features.may_have(|own| own.logging) => {
                let params: SetLevelRequestParams = params_of(&raw)?;
                let mut caller = Caller::clone(&self.caller);
                caller.log_level = Some(params.level);
                self.caller = Arc::new(caller);
                Ok(RequestAction::Respond(Json::empty_object()))
            }
            "resources/subscribe" if self.features.may_have(|own| own.subscriptions) => {
                params_of(&raw).map(|ResourceParams { uri }| RequestAction::SubscribeResource(uri))
            }
            "resources/unsubscribe" if self.features.may_have(|own| own.subscriptions) => {
                let params = params_of(&raw);
                params.map(|ResourceParams { uri }| RequestAction::UnsubscribeResource(uri))
            }
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                Err(Rejection::method_not_found(&raw.method))
            }
            method if self.caller.dialect.lacks_request(method) => {
                Err(Rejection::method_not_found(method))
            }
            _ => admit_as(&self.caller, raw),
        }
    }

    /// Updates the state for a client's notification, and returns how to handle it.
    pub fn handle_notification(&mut self, notification: &Notification) -> NotificationAction {
        match &*notification.method {
            "notifications/initialized" if self.stage == HandshakeStage::Initializing => {
                self.stage = HandshakeStage::Ready;
                NotificationAction::Initialized
            }
            "notifications/initialized" => NotificationAction::Ignore,
            _ => NotificationAction::Dispatch(self.caller.clone()),
        }
    }
}

/// Negotiates the version: the requested one if it is a served legacy version, else the latest served legacy version.
fn admit_initialize(
    raw: &RawRequest,
    served: &Dialects,
    features: &DeclaredFeatures,
    log_level: Option<LoggingLevel>,
) -> Result<(Arc<Caller>, RequestAction), Rejection> {
    let Some(latest) = served.latest_legacy() else {
        return Err(modern::unsupported_initialize(raw.params.as_ref(), served));
    };
    if let Some(params) = &raw.params {
        let member = |name| params.member(name).ok().flatten();
        check_caller_text(
            member("clientInfo").as_ref(),
            member("capabilities").as_ref(),
        )?;
    }
    let params: InitializeRequestParams = params_of(raw)?;
    let dialect = served
        .of(params.protocol_version.as_str())
        .filter(|dialect| !dialect.is_modern())
        .unwrap_or(latest);
    let caller = Caller {
        dialect,
        implementation: Some(params.client_info),
        capabilities: params.capabilities,
        log_level,
    };
    let caller = Arc::new(caller);
    let discover = RawRequest {
        id: raw.id.clone(),
        method: DISCOVER.into(),
        params: only_meta(raw.params.as_ref()),
    };
    let mut action = admit_as(&caller, discover)?;
    if let RequestAction::Dispatch { seal, .. } = &mut action {
        seal.handshake = Some(features.clone());
    }
    Ok((caller, action))
}

fn admit_as(caller: &Arc<Caller>, raw: RawRequest) -> Result<RequestAction, Rejection> {
    let progress_token = EnvelopeMembers::of(raw.params.as_ref())?.progress_token()?;
    let seal = Seal::new(caller.dialect, raw.method.clone());
    let request = Request {
        method: raw.method,
        params: raw.params.unwrap_or_else(Params::none),
        caller: Arc::clone(caller),
        progress_token,
    };
    Ok(RequestAction::Dispatch { request, seal })
}

fn params_of<'a, T: Deserialize<'a>>(raw: &'a RawRequest) -> Result<T, Rejection> {
    let invalid = || {
        let method = shortened(&raw.method);
        Rejection::invalid_params(format!("invalid params for `{method}`"))
    };
    let params = raw.params.as_ref().ok_or_else(invalid)?;
    params.decode().map_err(|_| invalid())
}

fn only_meta(params: Option<&Params>) -> Option<Params> {
    let meta = params?.member("_meta").ok()??;
    Some(Json::object([("_meta", &meta)]).into())
}

/// The params of `resources/subscribe` and `resources/unsubscribe`.
#[derive(Deserialize)]
struct ResourceParams {
    uri: String,
}

/// The internal method name of `initialize`.
const DISCOVER: &str = "server/discover";
