//! The legacy era: `initialize` first, then both sides remember.
//!
//! [`Session`] is what a server remembers; it supplies the [`Caller`] that legacy requests do not name.
//! [`Adapter`] gives and takes messages in the forms of one legacy dialect.
//!
//! ```text
//! (nothing) ── initialize ──▶ Opening ── notifications/initialized ──▶ Ready
//!                               │  ▲                                     │
//!                               └──┴─────────────────────────────────────┘
//!                                   initialize, if nothing else was sent
//! ```
//!
//! The second `initialize` is that of a client behind a gateway which has shaken hands for itself first.
//!
//! This file can be replaced by `legacy_stub.rs`, which proves that nothing outside it relies on it.

mod adapter;
pub use adapter::Adapter;

mod fit;

use std::sync::Arc;

use bowline_types::{
    ErrorCode, InitializeRequestParams, Json, LoggingLevel, SetLevelRequestParams,
};
use serde::Deserialize;

use super::modern::{self, Keys};
use super::{Admitted, Caller, Dialect, Dialects, Heard, Offers, Rejection, Request, Seal};
use crate::json::Params;
use crate::{Notification, RawRequest, shortened};

/// What was opened on a wire.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the set of eras is closed")]
pub enum Era {
    /// Nothing: each request is complete in itself, and unsolicited messages are not allowed.
    Modern,
    /// `initialize` was heard. Modern requests are still served.
    Legacy(Session),
}

/// What a server remembers of one legacy client.
#[derive(Clone, Debug)]
pub struct Session {
    caller: Arc<Caller>,
    stage: Stage,
    /// Whether the client has sent anything besides handshakes and pings.
    in_use: bool,
    offers: Offers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `initialize` was admitted; whether its answer pleases the client is not known yet.
    Opening,
    Ready,
}

/// Admits a request without a modern envelope where no handshake took place yet.
///
/// # Errors
///
/// Unless it is `initialize` or `ping`, and legacy versions are served at all.
pub fn open(
    raw: &RawRequest,
    served: &Dialects,
    offers: Offers,
) -> Result<(Era, Admitted), Rejection> {
    match &*raw.method {
        "initialize" => {
            let (caller, admitted) = shake_hands(raw, served)?;
            let session = Session {
                caller: Arc::new(caller),
                stage: Stage::Opening,
                in_use: false,
                offers,
            };
            Ok((Era::Legacy(session), admitted))
        }
        "ping" if served.latest_legacy().is_some() => {
            Ok((Era::Modern, Admitted::Answer(Json::empty_object())))
        }
        _ => Err(modern::no_envelope(served)),
    }
}

impl Session {
    /// The conversation with a client that never shook hands, of whom only the version is known.
    #[must_use]
    pub fn without_handshake(dialect: &'static Dialect, offers: Offers) -> Self {
        let caller = Caller {
            log_level: Some(LEVEL_UNTIL_SET),
            ..Caller::new(dialect)
        };
        Self {
            caller: Arc::new(caller),
            stage: Stage::Ready,
            in_use: true,
            offers,
        }
    }

    /// Who is asking, with the log level as it was last set.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Whether the client said `notifications/initialized`; until then only pings and logs may be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Lets a request in, or says why not.
    ///
    /// A second `initialize` replaces the first while the client has not said that it is ready, so that a
    /// client whose first attempt failed can try again. It also does later, if nothing but pings came in
    /// between: gateways shake hands for themselves and then forward the handshake of their client. Once
    /// the client has made requests it is refused, because those were made under the first one.
    ///
    /// # Errors
    ///
    /// If the request is ill-formed, or its method belongs to other versions or is not offered.
    pub fn admit(&mut self, raw: RawRequest, served: &Dialects) -> Result<Admitted, Rejection> {
        if !matches!(&*raw.method, "initialize" | "ping") {
            self.in_use = true;
        }
        match &*raw.method {
            "initialize" if self.stage == Stage::Opening || !self.in_use => {
                let (caller, admitted) = shake_hands(&raw, served)?;
                self.caller = Arc::new(caller);
                self.stage = Stage::Opening;
                Ok(admitted)
            }
            "initialize" => Err(Rejection::new(
                ErrorCode::INVALID_REQUEST,
                "`initialize` was already answered",
            )),
            "ping" => Ok(Admitted::Answer(Json::empty_object())),
            "logging/setLevel" if self.offers.logging => {
                let wish: SetLevelRequestParams = params_of(&raw)?;
                let mut caller = Caller::clone(&self.caller);
                caller.log_level = Some(wish.level);
                self.caller = Arc::new(caller);
                Ok(Admitted::Answer(Json::empty_object()))
            }
            "resources/subscribe" if self.offers.subscriptions => {
                params_of(&raw).map(|Target { uri }| Admitted::Watch(uri))
            }
            "resources/unsubscribe" if self.offers.subscriptions => {
                params_of(&raw).map(|Target { uri }| Admitted::Unwatch(uri))
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

    /// Takes note of a client's notification.
    pub fn hear(&mut self, notification: &Notification) -> Heard {
        self.in_use |= notification.method != "notifications/initialized";
        match &*notification.method {
            "notifications/initialized" if self.stage == Stage::Opening => {
                self.stage = Stage::Ready;
                Heard::Initialized
            }
            "notifications/initialized" => Heard::Nothing,
            "notifications/roots/list_changed" => Heard::RootsListChanged,
            _ => Heard::Other,
        }
    }
}

/// Negotiates: the offered version if it is served, else our latest; never a modern one, for that has no
/// handshake.
fn shake_hands(raw: &RawRequest, served: &Dialects) -> Result<(Caller, Admitted), Rejection> {
    let Some(latest) = served.latest_legacy() else {
        return Err(modern::no_handshake(raw.params.as_ref(), served));
    };
    let offer: InitializeRequestParams = params_of(raw)?;
    let dialect = served
        .of(offer.protocol_version.as_str())
        .filter(|dialect| !dialect.is_modern())
        .unwrap_or(latest);
    let caller = Caller {
        dialect,
        implementation: Some(offer.client_info),
        capabilities: offer.capabilities,
        log_level: Some(LEVEL_UNTIL_SET),
    };
    let discover = RawRequest {
        id: raw.id.clone(),
        method: OPENING.into(),
        params: only_meta(raw.params.as_ref()),
    };
    let admitted = admit_as(&Arc::new(caller.clone()), discover)?;
    Ok((caller, admitted))
}

fn admit_as(caller: &Arc<Caller>, raw: RawRequest) -> Result<Admitted, Rejection> {
    let progress_token = Keys::of(raw.params.as_ref())?.progress_token()?;
    let seal = Seal::new(caller.dialect, raw.method.clone());
    let request = Request {
        method: raw.method,
        params: raw.params.unwrap_or_else(Params::none),
        caller: Arc::clone(caller),
        progress_token,
    };
    Ok(Admitted::Request { request, seal })
}

fn params_of<'a, T: Deserialize<'a>>(raw: &'a RawRequest) -> Result<T, Rejection> {
    let wrong = || {
        let method = shortened(&raw.method);
        Rejection::invalid_params(format!("`{method}` has ill-formed params"))
    };
    let params = raw.params.as_ref().ok_or_else(wrong)?;
    params.decode().map_err(|_| wrong())
}

fn only_meta(params: Option<&Params>) -> Option<Params> {
    let meta = params?.member("_meta").ok()??;
    Some(Json::object([("_meta", &meta)]).into())
}

/// The params of `resources/subscribe` and `resources/unsubscribe`.
#[derive(Deserialize)]
struct Target {
    uri: String,
}

/// The inside name of `initialize`.
const OPENING: &str = "server/discover";

/// "If no `logging/setLevel` request has been sent", the server chooses: everything.
const LEVEL_UNTIL_SET: LoggingLevel = LoggingLevel::Debug;
