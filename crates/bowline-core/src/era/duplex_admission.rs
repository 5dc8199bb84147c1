//! [`DuplexAdmission`]: admission of messages on the server side of one duplex wire.
//!
//! The era is determined for each message, because one wire may carry both:
//!
//! ```text
//! request with a modern `_meta` ──▶ modern, whatever came before
//! `initialize`                  ──▶ starts the legacy era, and sets the caller of later legacy requests
//! `ping`                        ──▶ legacy, also before `initialize`
//! other requests                ──▶ legacy after `initialize`, else rejected
//! ```

use std::sync::{Arc, OnceLock};

use bowline_types::{Json, ServerCapabilities};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::modern;
use super::{Caller, CallerCache, Dialects, Era, Rejection, Request, Seal, legacy};
use crate::{Notification, RawRequest};

/// The admission state of one duplex wire on a server.
#[derive(Clone, Debug)]
pub struct DuplexAdmission {
    served: Dialects,
    era: Era,
    caller_cache: Arc<CallerCache>,
}

/// How to handle an admitted request.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a shell that ignores a variant leaves requests unanswered"
)]
pub enum RequestAction {
    /// Pass it to the responder, and its outcome to [`seal`](super::seal).
    Dispatch {
        /// The request.
        request: Request,
        /// The wire form of the response.
        seal: Seal,
    },
    /// Respond with this result.
    Respond(Json),
    /// Start sending `notifications/resources/updated` for this URI, then respond with `{}`.
    SubscribeResource(String),
    /// Stop sending `notifications/resources/updated` for this URI, and respond with `{}`.
    UnsubscribeResource(String),
}

/// How to handle a notification from a client.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "a shell must handle every variant")]
pub enum NotificationAction {
    /// The legacy client is initialized: unsolicited messages may be sent to it.
    Initialized,
    /// Pass it to the responder, as sent by this caller.
    Dispatch(Arc<Caller>),
    /// Without meaning in the current state; to be dropped.
    Ignore,
}

/// The capabilities of a server whose methods [`DuplexAdmission`] handles itself: those that the result of the handshake
/// declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LegacyFeatures {
    /// Whether `logging/setLevel` is supported.
    pub logging: bool,
    /// Whether `resources/subscribe` and `resources/unsubscribe` are supported.
    pub subscriptions: bool,
}

/// The features that the result of one handshake declares; unknown until [`seal`](super::seal) has sealed it.
///
/// Admission and the [`Seal`] of the handshake share it, because the result is sealed on the task of its handler. The
/// client cannot have received the result before that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeclaredFeatures(Arc<OnceLock<LegacyFeatures>>);

impl DeclaredFeatures {
    /// Reads the features from the result of `initialize`.
    pub(super) fn record(&self, result: &Json) {
        let _ = self.0.set(LegacyFeatures::of_handshake(result));
    }

    /// Returns whether the server declared a feature. Before the handshake is answered every feature is accepted: a
    /// client that does not wait for the answer, such as a script, relies on what it knows of the server.
    #[cfg_attr(
        not(feature = "legacy"),
        allow(dead_code, reason = "used by the legacy era only")
    )]
    pub(super) fn may_have(&self, feature: impl FnOnce(&LegacyFeatures) -> bool) -> bool {
        self.0.get().is_none_or(feature)
    }
}

impl From<LegacyFeatures> for DeclaredFeatures {
    fn from(features: LegacyFeatures) -> Self {
        Self(Arc::new(features.into()))
    }
}

impl DuplexAdmission {
    /// Creates the state of a new wire.
    #[must_use]
    pub fn new(served: Dialects) -> Self {
        Self {
            served,
            era: Era::Modern,
            caller_cache: Arc::default(),
        }
    }

    /// Creates the state of a wire whose era another process has determined.
    #[must_use]
    pub fn with_era(served: Dialects, era: Era) -> Self {
        Self {
            era,
            ..Self::new(served)
        }
    }

    /// Admits a request.
    ///
    /// # Errors
    ///
    /// If neither era admits the request.
    pub fn admit(&mut self, raw: RawRequest) -> Result<RequestAction, Rejection> {
        if let Some(envelope) = self.caller_cache.envelope(raw.params.as_ref())? {
            let dialect = envelope.dialect(&self.served)?;
            let caller = self.caller_cache.caller(&envelope, dialect)?;
            let (request, seal) = modern::admit_from(raw, caller, envelope.progress_token()?)?;
            return Ok(RequestAction::Dispatch { request, seal });
        }
        match &mut self.era {
            Era::Legacy(state) => state.admit(raw, &self.served),
            Era::Modern => {
                let (era, action) = legacy::admit_before_initialize(&raw, &self.served)?;
                self.era = era;
                Ok(action)
            }
        }
    }

    /// Updates the state for a client's notification, and returns how to handle it.
    pub fn handle_notification(&mut self, notification: &Notification) -> NotificationAction {
        if let Era::Legacy(state) = &mut self.era
            && !modern::is_modern_notification(notification)
        {
            return state.handle_notification(notification);
        }
        let caller = self.caller_cache.notifier(notification, &self.served);
        caller.map_or(NotificationAction::Ignore, NotificationAction::Dispatch)
    }

    /// Returns the era. Unsolicited messages and server requests are allowed in [`Era::Legacy`] only.
    #[must_use]
    pub fn era(&self) -> &Era {
        &self.era
    }
}

impl LegacyFeatures {
    /// Reads the features from the result of `initialize` or `server/discover`. What cannot be decoded is not declared.
    #[must_use]
    pub fn of_handshake(result: &Json) -> Self {
        let declared: HandshakeResult = result.decode().unwrap_or_default();
        let HandshakeCapabilities { logging, resources } = declared.capabilities;
        Self {
            logging: logging.is_some(),
            subscriptions: resources.is_some_and(|resources| resources.subscribe == Some(true)),
        }
    }
}

/// The part of a handshake's result that [`LegacyFeatures`] depends on. The capabilities may have any other members.
#[derive(Default, Deserialize)]
struct HandshakeResult {
    capabilities: HandshakeCapabilities,
}

#[derive(Default, Deserialize)]
struct HandshakeCapabilities {
    logging: Option<IgnoredAny>,
    resources: Option<HandshakeResources>,
}

#[derive(Deserialize)]
struct HandshakeResources {
    subscribe: Option<bool>,
}

impl From<&ServerCapabilities> for LegacyFeatures {
    fn from(capabilities: &ServerCapabilities) -> Self {
        Self {
            logging: capabilities.logging.is_some(),
            subscriptions: capabilities
                .resources
                .as_ref()
                .is_some_and(|resources| resources.subscribe == Some(true)),
        }
    }
}
