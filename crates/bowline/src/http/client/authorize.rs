//! What happens when a server refuses a request until it knows who is asking.
//!
//! ```text
//! sign ──▶ send ──▶ 401, 403 ──▶ answer (the request's time stands still) ──▶ sign ──▶ send
//! ```

use std::sync::Arc;

use bowline_core::http::challenge::Challenge;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, request, response};

use crate::Result;
use crate::exchange::{BoxFuture, Stopwatch};

/// Knows how to satisfy a server that wants to know who is asking.
///
/// A request that was refused waits for [`answer`](Self::answer), and is then sent again: once for each
/// [`Reason`] for which a server may refuse it. Its timeouts do not run in the meantime, for a person may have
/// to decide; how long that may take is for the implementation to say.
///
/// # Cancel safety
///
/// Dropping a call drops the future that it waits for. Several calls may wait at the same time, so an
/// implementation that asks a person should ask once for all of them.
///
/// # Examples
///
/// A token from elsewhere:
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
    /// Adds what is known about the caller to a request that is about to be sent: usually one header, and
    /// nothing while nothing is known.
    fn sign<'a>(&'a self, request: &'a mut request::Parts) -> BoxFuture<'a, Result<()>>;

    /// Finds out what it takes to get the refused request accepted. Once it has, the request is sent again.
    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, Result<()>>;

    /// Returns a unique name of the signed-in user, or `None` if it is not known. It must change when another user signs in.
    ///
    /// Private results (`cacheScope`) are cached per identity, and not at all without one.
    fn identity(&self) -> Option<String>;

    /// Hears the head of every response.
    fn hear(&self, head: &response::Parts) {
        let _ = head;
    }
}

/// An authorizer that the application keeps a handle of, or that several clients share.
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

    fn hear(&self, head: &response::Parts) {
        (**self).hear(head);
    }
}

/// A server's no, until it knows who is asking.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// Where the request went.
    pub uri: Uri,
    /// What the request said about the caller, if anything. It is not shown by `Debug`.
    pub sent: Option<HeaderValue>,
    /// Why it was refused.
    pub reason: Reason,
    /// What the server asks for.
    pub challenges: Vec<Challenge>,
    /// The headers of the response.
    pub headers: HeaderMap,
}

/// Why a server refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It does not know who is asking: there is no token, or none that is good.
    Unauthenticated,
    /// It knows, and that is not enough for this request.
    InsufficientScope,
    /// The proof that goes with the token must contain a nonce of the server's.
    Nonce,
}

impl Refusal {
    /// Reads the head of a response; `None` if that is no refusal which could be answered.
    fn read(uri: &Uri, sent: Option<HeaderValue>, head: &response::Parts) -> Option<Self> {
        let challenges = challenges(&head.headers);
        let says = |error| {
            let mut errors = challenges.iter().filter_map(Challenge::error);
            errors.any(|own| own == error)
        };
        let reason = match head.status {
            StatusCode::UNAUTHORIZED if says("use_dpop_nonce") => Reason::Nonce,
            StatusCode::UNAUTHORIZED => Reason::Unauthenticated,
            StatusCode::FORBIDDEN if says("insufficient_scope") => Reason::InsufficientScope,
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

    /// The error for a caller that cannot be helped.
    #[must_use]
    pub fn to_error(&self) -> crate::Error {
        crate::Error::Unauthorized {
            challenges: self.challenges.clone(),
            source: None,
        }
    }
}

/// What becomes of a request that is refused.
#[derive(Clone, Copy)]
pub(crate) enum WhenRefused<'a> {
    /// It is not worth asking a person.
    GiveUp,
    /// It is sent again; nobody counts its time.
    Authorize,
    /// It is sent again, and until then its time stands still.
    AuthorizeWhile(&'a dyn Stopwatch),
}

/// The refusals that one request has met.
pub(super) struct Refusals<'a> {
    authorizer: Option<&'a dyn Authorizer>,
    when_refused: WhenRefused<'a>,
    met: Vec<Reason>,
}

impl<'a> Refusals<'a> {
    pub(super) fn new(
        authorizer: Option<&'a dyn Authorizer>,
        when_refused: WhenRefused<'a>,
    ) -> Self {
        Self {
            authorizer,
            when_refused,
            met: Vec::new(),
        }
    }

    /// Adds what is known about the caller; returns what that is.
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

    /// Gives a refusal back as an error if it is to be answered, and the request to be sent again.
    pub(super) fn meet<B>(
        &mut self,
        uri: &Uri,
        sent: Option<HeaderValue>,
        response: Response<B>,
    ) -> Result<Response<B>, Box<Refusal>> {
        let Some(authorizer) = self.authorizer else {
            return Ok(response);
        };
        let (head, body) = response.into_parts();
        authorizer.hear(&head);
        match Refusal::read(uri, sent, &head) {
            Some(refusal) if self.is_worth_answering(&refusal) => {
                self.met.push(refusal.reason);
                Err(Box::new(refusal))
            }
            _ => Ok(Response::from_parts(head, body)),
        }
    }

    /// A server that refuses for the same reason twice is not asked a third time.
    fn is_worth_answering(&self, refusal: &Refusal) -> bool {
        !matches!(self.when_refused, WhenRefused::GiveUp) && !self.met.contains(&refusal.reason)
    }

    /// Waits until the request may be sent again.
    pub(super) async fn answer(&self, refusal: &Refusal) -> Result<()> {
        let Some(authorizer) = self.authorizer else {
            return Err(refusal.to_error());
        };
        match self.when_refused {
            WhenRefused::AuthorizeWhile(stopwatch) => {
                stopwatch.stop().await;
                authorizer.answer(refusal).await?;
                stopwatch.go_on().await;
                Ok(())
            }
            WhenRefused::Authorize | WhenRefused::GiveUp => authorizer.answer(refusal).await,
        }
    }
}

/// What the server asks for.
pub(super) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let values = headers.get_all(WWW_AUTHENTICATE).into_iter();
    Challenge::parse_all(values.filter_map(|value| value.to_str().ok()))
}
