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

use std::sync::Arc;

use bowline_types::{Json, ServerCapabilities};

use super::modern;
use super::{CallerCache, Dialects, Era, Rejection, Request, Seal, legacy};
use crate::{Notification, RawRequest};

/// The admission state of one duplex wire on a server.
#[derive(Clone, Debug)]
pub struct DuplexAdmission {
    served: Dialects,
    features: LegacyFeatures,
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
    /// Start sending `notifications/resources/updated` for this URI, and respond with `{}`.
    SubscribeResource(String),
    /// Stop sending `notifications/resources/updated` for this URI, and respond with `{}`.
    UnsubscribeResource(String),
}

/// How to handle a notification from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a shell must handle every variant")]
pub enum NotificationAction {
    /// The legacy client is initialized: unsolicited messages may be sent to it.
    Initialized,
    /// The legacy client's roots changed.
    RootsListChanged,
    /// Not related to admission.
    Other,
    /// Without meaning in the current state; to be dropped.
    Ignore,
}

/// The capabilities of a server whose methods [`DuplexAdmission`] handles itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LegacyFeatures {
    /// Whether `logging/setLevel` is supported.
    pub logging: bool,
    /// Whether `resources/subscribe` and `resources/unsubscribe` are supported.
    pub subscriptions: bool,
}

impl DuplexAdmission {
    /// Creates the state of a new wire.
    #[must_use]
    pub fn new(served: Dialects, features: LegacyFeatures) -> Self {
        Self {
            served,
            features,
            era: Era::Modern,
            caller_cache: Arc::default(),
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
                let (era, action) =
                    legacy::admit_before_initialize(&raw, &self.served, self.features)?;
                self.era = era;
                Ok(action)
            }
        }
    }

    /// Updates the state for a client's notification, and returns how to handle it.
    pub fn handle_notification(&mut self, notification: &Notification) -> NotificationAction {
        match (&mut self.era, &*notification.method) {
            (Era::Legacy(state), _) => state.handle_notification(notification),
            (Era::Modern, "notifications/initialized" | "notifications/roots/list_changed") => {
                NotificationAction::Ignore
            }
            (Era::Modern, _) => NotificationAction::Other,
        }
    }

    /// Returns the era. Unsolicited messages and server requests are allowed in [`Era::Legacy`] only.
    #[must_use]
    pub fn era(&self) -> &Era {
        &self.era
    }
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
