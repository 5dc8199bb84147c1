//! The receiving end of one duplex wire on a server: which era is this message?
//!
//! Decided message by message, for one process may serve both eras at once:
//!
//! ```text
//! request with a modern `_meta` ──▶ modern, whatever happened before
//! `initialize`                  ──▶ opens legacy; from then on it supplies the caller
//! `ping`                        ──▶ legacy, even before that
//! anything else                 ──▶ legacy if it is open, else refused
//! ```

use std::sync::Arc;

use bowline_types::{Json, ServerCapabilities};

use super::modern;
use super::{Callers, Dialects, Era, Rejection, Request, Seal, legacy};
use crate::{Notification, RawRequest};

/// What the receiving end of one duplex wire remembers.
#[derive(Clone, Debug)]
pub struct Door {
    served: Dialects,
    offers: Offers,
    era: Era,
    callers: Arc<Callers>,
}

/// What to do with a request that may come in.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a shell that forgets one kind leaves requests unanswered"
)]
pub enum Admitted {
    /// Have it answered, and pass the outcome through [`seal`](super::seal).
    Request {
        /// What is asked.
        request: Request,
        /// What the answer must look like.
        seal: Seal,
    },
    /// Answer with this result.
    Answer(Json),
    /// Tell the caller from now on when this resource changes, and answer `{}`.
    Watch(String),
    /// Stop telling the caller when this resource changes, and answer `{}`.
    Unwatch(String),
}

/// What a client's notification means for the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a shell that forgets one kind ignores a client"
)]
pub enum Heard {
    /// The legacy client is ready: unsolicited messages may be sent.
    Initialized,
    /// The legacy client's roots changed.
    RootsListChanged,
    /// Not the door's business.
    Other,
    /// It means nothing here and is dropped.
    Nothing,
}

/// What a server offers of the methods that the door answers itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offers {
    /// Whether a client may set a log level.
    pub logging: bool,
    /// Whether a client may subscribe to resources.
    pub subscriptions: bool,
}

impl Door {
    /// A door that nobody came through yet.
    #[must_use]
    pub fn new(served: Dialects, offers: Offers) -> Self {
        Self {
            served,
            offers,
            era: Era::Modern,
            callers: Arc::default(),
        }
    }

    /// Lets a request in, or says why not.
    ///
    /// # Errors
    ///
    /// If no era admits the request.
    pub fn admit(&mut self, raw: RawRequest) -> Result<Admitted, Rejection> {
        if let Some(envelope) = self.callers.envelope(raw.params.as_ref())? {
            let dialect = envelope.dialect(&self.served)?;
            let caller = self.callers.read(&envelope, dialect)?;
            let (request, seal) = modern::admit_from(raw, caller, envelope.progress_token()?)?;
            return Ok(Admitted::Request { request, seal });
        }
        match &mut self.era {
            Era::Legacy(opened) => opened.admit(raw, &self.served),
            Era::Modern => {
                let (era, admitted) = legacy::open(&raw, &self.served, self.offers)?;
                self.era = era;
                Ok(admitted)
            }
        }
    }

    /// Takes note of a client's notification.
    pub fn hear(&mut self, notification: &Notification) -> Heard {
        match (&mut self.era, &*notification.method) {
            (Era::Legacy(opened), _) => opened.hear(notification),
            (Era::Modern, "notifications/initialized" | "notifications/roots/list_changed") => {
                Heard::Nothing
            }
            (Era::Modern, _) => Heard::Other,
        }
    }

    /// What was opened: unsolicited messages and server requests are for [`Era::Legacy`] only.
    #[must_use]
    pub fn era(&self) -> &Era {
        &self.era
    }

    /// The versions that are served.
    #[must_use]
    pub fn served(&self) -> &Dialects {
        &self.served
    }
}

impl From<&ServerCapabilities> for Offers {
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
