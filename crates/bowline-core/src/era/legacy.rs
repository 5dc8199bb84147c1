//! The legacy era: versions and capabilities are negotiated once, by `initialize`.
//!
//! [`Session`] is the server's state of a legacy client; it supplies the [`Caller`] of later requests. [`Adapter`]
//! converts messages to and from the wire form of one legacy dialect.
//!
//! ```text
//! (none) ── initialize ──▶ Initializing ── notifications/initialized ──▶ Ready
//!                             │  ▲                                         │
//!                             └──┴─────────────────────────────────────────┘
//!                                initialize, if no other message was sent
//! ```
//!
//! A second `initialize` occurs behind gateways, which initialize themselves before they forward that of a client.
//!
//! `legacy_disabled.rs` can replace this file, which proves that no other code depends on it.

mod adapter;
pub use adapter::Adapter;

mod converter;

use std::sync::Arc;

use bowline_types::{ErrorCode, InitializeRequestParams, Json, SetLevelRequestParams};
use serde::Deserialize;

use super::modern::{self, EnvelopeMembers};
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
    /// Whether the client has sent messages other than `initialize`, `notifications/initialized` and `ping`.
    in_use: bool,
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
            let (caller, action) = admit_initialize(raw, served, &features)?;
            let session = Session {
                caller: Arc::new(caller),
                stage: HandshakeStage::Initializing,
                in_use: false,
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
            in_use: true,
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
            in_use: true,
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
    /// A second `initialize` replaces the first before `notifications/initialized`, so that a client can retry, and
    /// later if only pings were received: gateways initialize themselves and then forward the `initialize` of their
    /// client. After any other message it is rejected, because that message used the first result.
    ///
    /// # Errors
    ///
    /// If the request is malformed, or its method is not defined in this version or not offered by the server.
    pub fn admit(
        &mut self,
        raw: RawRequest,
        served: &Dialects,
    ) -> Result<RequestAction, Rejection> {
        if !matches!(&*raw.method, "initialize" | "ping") {
            self.in_use = true;
        }
        match &*raw.method {
            "initialize" if self.stage == HandshakeStage::Initializing || !self.in_use => {
                let features = DeclaredFeatures::default();
                let (caller, action) = admit_initialize(&raw, served, &features)?;
                (self.caller, self.features) = (Arc::new(caller), features);
                self.stage = HandshakeStage::Initializing;
                Ok(action)
            }
            "initialize" => Err(Rejection::new(
                ErrorCode::INVALID_REQUEST,
                "`initialize` was already completed",
            )),
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
        self.in_use |= notification.method != "notifications/initialized";
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
) -> Result<(Caller, RequestAction), Rejection> {
    let Some(latest) = served.latest_legacy() else {
        return Err(modern::unsupported_initialize(raw.params.as_ref(), served));
    };
    let params: InitializeRequestParams = params_of(raw)?;
    let dialect = served
        .of(params.protocol_version.as_str())
        .filter(|dialect| !dialect.is_modern())
        .unwrap_or(latest);
    let caller = Caller {
        dialect,
        implementation: Some(params.client_info),
        capabilities: params.capabilities,
        log_level: None,
    };
    let discover = RawRequest {
        id: raw.id.clone(),
        method: DISCOVER.into(),
        params: only_meta(raw.params.as_ref()),
    };
    let mut action = admit_as(&Arc::new(caller.clone()), discover)?;
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
