//! `Authorizer`, which signs requests and handles 401 and 403, and `Refusals`, which limits the retries of a request.
//!
//! ```text
//! sign ──▶ send ──▶ 401, 403 ──▶ answer (timeouts are suspended) ──▶ sign ──▶ send
//! ```

use std::sync::Arc;

use bowline_core::http::challenge::Challenge;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, request, response};

use crate::Result;
use crate::exchange::{BoxFuture, TimeoutControl};

/// Authorizes requests: adds credentials, and obtains new ones when the server refuses a request with 401 or 403.
///
/// A refused request waits for [`answer`](Self::answer) and is then sent again, once for each [`RefusalReason`]. Its
/// timeouts are suspended meanwhile, because a user may have to consent; the implementation limits how long that takes.
///
/// # Cancel safety
///
/// Dropping a call drops the future that it waits for. Several calls may wait at the same time; an implementation
/// should prompt the user once for all of them.
///
/// # Examples
///
/// A fixed token:
///
/// ```
/// use bowline::exchange::BoxFuture;
/// use bowline::http::client::{Authorizer, Refusal};
/// use http::HeaderValue;
///
/// struct Vault;
///
/// impl Authorizer for Vault {
///     fn sign<'a>(&'a self, request: &'a mut http::request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
///         Box::pin(async {
///             let token = HeaderValue::from_static("Bearer read-from-the-vault");
///             request.headers.insert(http::header::AUTHORIZATION, token);
///             Ok(())
///         })
///     }
///
///     fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
///         Box::pin(async { Err(refusal.to_error()) })
///     }
///
///     fn identity(&self) -> Option<String> {
///         Some("nightly-job".into()) // the only user of this token
///     }
/// }
///
/// # let _ =
/// bowline::Client::connect("https://example.com/mcp").authorizer(Vault);
/// ```
pub trait Authorizer: Send + Sync + 'static {
    /// Adds credentials to a request before it is sent, usually the `Authorization` header. Leaves it unchanged while
    /// there are none.
    fn sign<'a>(&'a self, request: &'a mut request::Parts) -> BoxFuture<'a, Result<()>>;

    /// Obtains the credentials that the refused request lacks. The request is sent again if this returns `Ok`.
    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, Result<()>>;

    /// Returns a unique name of the signed-in user, or `None` if unknown. It must change when another user signs in.
    ///
    /// Private results (`cacheScope`) are cached per identity, and not at all without one.
    fn identity(&self) -> Option<String>;

    /// Receives the head of every response.
    fn observe_response(&self, head: &response::Parts) {
        let _ = head;
    }
}

/// For an authorizer to which the application keeps a handle, or that several clients share.
impl<A: Authorizer + ?Sized> Authorizer for Arc<A> {
    fn sign<'a>(&'a self, request: &'a mut request::Parts) -> BoxFuture<'a, Result<()>> {
        (**self).sign(request)
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, Result<()>> {
        (**self).answer(refusal)
    }

    fn identity(&self) -> Option<String> {
        (**self).identity()
    }

    fn observe_response(&self, head: &response::Parts) {
        (**self).observe_response(head);
    }
}

/// A request that the server refused with 401 or 403.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The URL of the request.
    pub uri: Uri,
    /// The `Authorization` header of the request, if any. `Debug` does not print its value.
    pub sent: Option<HeaderValue>,
    /// Why the request was refused.
    pub reason: RefusalReason,
    /// The challenges of the `WWW-Authenticate` header.
    pub challenges: Vec<Challenge>,
    /// The headers of the response.
    pub headers: HeaderMap,
}

/// The reason for a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// 401: the token is missing or invalid.
    Unauthenticated,
    /// 403 with `insufficient_scope`: the token lacks a scope that this request needs.
    InsufficientScope,
    /// 401 with `use_dpop_nonce`: the DPoP proof must contain a nonce from the server.
    Nonce,
}

impl Refusal {
    /// Reads the head of a response; `None` unless it is a refusal that an authorizer can answer.
    fn read(uri: &Uri, sent: Option<HeaderValue>, head: &response::Parts) -> Option<Self> {
        let challenges = challenges(&head.headers);
        let has_error = |error| {
            let mut errors = challenges.iter().filter_map(Challenge::error);
            errors.any(|own| own == error)
        };
        let reason = match head.status {
            StatusCode::UNAUTHORIZED if has_error("use_dpop_nonce") => RefusalReason::Nonce,
            StatusCode::UNAUTHORIZED => RefusalReason::Unauthenticated,
            StatusCode::FORBIDDEN if has_error("insufficient_scope") => {
                RefusalReason::InsufficientScope
            }
            _ => return None,
        };
        Some(Self {
            uri: uri.clone(),
            sent,
            reason,
            challenges,
            headers: head.headers.clone(),
        })
    }

    /// Returns the error for the caller if no credentials can be obtained.
    #[must_use]
    pub fn to_error(&self) -> crate::Error {
        crate::Error::Unauthorized {
            challenges: self.challenges.clone(),
            source: None,
        }
    }
}

/// How to handle the refusal of a request.
#[derive(Clone, Copy)]
pub(crate) enum RefusalPolicy<'a> {
    /// Fail, for a message that does not justify prompting a user.
    Fail,
    /// Authorize and send again; the request has no timeout.
    Authorize,
    /// Authorize and send again; the request's timeouts are suspended meanwhile.
    AuthorizePausing(&'a dyn TimeoutControl),
}

/// The refusals of one request so far.
pub(super) struct Refusals<'a> {
    authorizer: Option<&'a dyn Authorizer>,
    refusal_policy: RefusalPolicy<'a>,
    answered: Vec<RefusalReason>,
}

impl<'a> Refusals<'a> {
    pub(super) fn new(
        authorizer: Option<&'a dyn Authorizer>,
        refusal_policy: RefusalPolicy<'a>,
    ) -> Self {
        Self {
            authorizer,
            refusal_policy,
            answered: Vec::new(),
        }
    }

    /// Signs a request; returns its `Authorization` header.
    pub(super) async fn sign(&self, head: &mut request::Parts) -> Result<Option<HeaderValue>> {
        let Some(authorizer) = self.authorizer else {
            return Ok(None);
        };
        authorizer.sign(head).await?;
        let sent = head.headers.get_mut(AUTHORIZATION);
        Ok(sent.map(|sent| {
            sent.set_sensitive(true);
            sent.clone()
        }))
    }

    /// Returns the refusal as an error if it should be answered and the request sent again.
    pub(super) fn check_response<B>(
        &mut self,
        uri: &Uri,
        sent: Option<HeaderValue>,
        response: Response<B>,
    ) -> Result<Response<B>, Box<Refusal>> {
        let Some(authorizer) = self.authorizer else {
            return Ok(response);
        };
        let (head, body) = response.into_parts();
        authorizer.observe_response(&head);
        match Refusal::read(uri, sent, &head) {
            Some(refusal) if self.is_worth_answering(&refusal) => {
                self.answered.push(refusal.reason);
                Err(Box::new(refusal))
            }
            _ => Ok(Response::from_parts(head, body)),
        }
    }

    /// Returns `false` for the second refusal with the same reason, which would otherwise retry forever.
    fn is_worth_answering(&self, refusal: &Refusal) -> bool {
        !matches!(self.refusal_policy, RefusalPolicy::Fail)
            && !self.answered.contains(&refusal.reason)
    }

    /// Has the authorizer answer the refusal; the request may be sent again afterwards.
    pub(super) async fn answer(&self, refusal: &Refusal) -> Result<()> {
        let Some(authorizer) = self.authorizer else {
            return Err(refusal.to_error());
        };
        match self.refusal_policy {
            RefusalPolicy::AuthorizePausing(timeouts) => {
                timeouts.pause().await;
                authorizer.answer(refusal).await?;
                timeouts.resume().await;
                Ok(())
            }
            RefusalPolicy::Authorize | RefusalPolicy::Fail => authorizer.answer(refusal).await,
        }
    }
}

/// Returns the challenges of the `WWW-Authenticate` headers.
pub(super) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let values = headers.get_all(WWW_AUTHENTICATE).into_iter();
    Challenge::parse_all(values.filter_map(|value| value.to_str().ok()))
}
