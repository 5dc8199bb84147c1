//! [`StaticTokens`]: the tower layer that admits requests with one of a few configured tokens.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{self, Poll};

use bowline::exchange::{BoxFuture, InsufficientScope, Principal};
use bowline::http::server::is_preflight;
use bowline::{Error, Result};
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::challenge::{ChallengeParams, DenialReason};
use super::credential::{Credential, Scheme, TokenDigest, token_digest};

/// A tower layer that admits requests with one of these bearer tokens, for servers without an authorization server.
/// Cheap to clone.
///
/// The layer adds the [`Principal`] of the token to the request and removes the token. Other requests are refused with
/// status 401, calls of tools whose scopes the principal lacks with 403. CORS preflight requests, which have no token,
/// pass it. Tokens are kept as digests, and compared in constant time.
///
/// Tokens should be random, such as the output of `openssl rand -hex 32`: one that can be guessed gives access.
///
/// # Examples
///
/// ```no_run
/// use bowline::Server;
/// use bowline::exchange::Principal;
/// use bowline_auth::server::StaticTokens;
///
/// # async fn example(server: Server) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = StaticTokens::new([
///     (std::env::var("ADA_TOKEN")?, Principal::named("ada").with_scopes(["files:read", "files:write"])),
///     (std::env::var("BOT_TOKEN")?, Principal::named("bot").with_scopes(["files:read"])),
/// ])?;
/// let bound = server.http().bind("127.0.0.1:8000").await?;
/// bound.layer(guard).serve().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "wrap a service in the layer"]
pub struct StaticTokens {
    principals: Arc<[(TokenDigest, Principal)]>,
}

impl StaticTokens {
    /// Creates a layer with these tokens and their principals.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if a token is empty, occurs twice or cannot be sent in an `Authorization` header, or a
    /// principal is anonymous.
    pub fn new<T: AsRef<str>>(tokens: impl IntoIterator<Item = (T, Principal)>) -> Result<Self> {
        let mut principals: Vec<(TokenDigest, Principal)> = Vec::new();
        for (token, principal) in tokens {
            let Some(name) = principal.name() else {
                return Err(misuse("the principal of a static token is anonymous"));
            };
            // Errors name the principal, because the token is secret.
            if !Credential::is_token(token.as_ref()) {
                return Err(misuse(&format!(
                    "the token of `{name}` is empty or has characters that a bearer token cannot have"
                )));
            }
            let digest = token_digest(token.as_ref());
            if principals.iter().any(|(other, _)| *other == digest) {
                return Err(misuse(&format!(
                    "the token of `{name}` is also that of another principal"
                )));
            }
            principals.push((digest, principal));
        }
        Ok(Self {
            principals: principals.into(),
        })
    }

    /// Checks the token of a request, and replaces it by its principal.
    fn admit(&self, head: &mut Parts) -> Result<Principal, DenialReason> {
        let read = Credential::read(&head.headers);
        let credential = read.map_err(|why| DenialReason::Malformed(why.to_owned()))?;
        let credential = credential.ok_or(DenialReason::NoToken)?;
        let principal = self.find(&token_digest(credential.token.as_str()));
        let Some(principal) = principal.filter(|_| credential.scheme == Scheme::Bearer) else {
            let why = "the token is unknown".to_owned();
            return Err(DenialReason::InvalidToken(Scheme::Bearer, why));
        };
        head.headers.remove(AUTHORIZATION);
        head.extensions.insert(principal.clone());
        Ok(principal)
    }

    /// Compares with every token, so that the time depends neither on which one matches nor on how much of it.
    fn find(&self, digest: &TokenDigest) -> Option<Principal> {
        let mut found = None;
        for (own, principal) in &*self.principals {
            let pairs = own.iter().zip(digest);
            let differences = pairs.fold(0, |differences, (a, b)| differences | (a ^ b));
            if differences == 0 {
                found = Some(principal);
            }
        }
        found.cloned()
    }
}

impl<S> Layer<S> for StaticTokens {
    type Service = StaticTokensService<S>;

    fn layer(&self, inner: S) -> StaticTokensService<S> {
        StaticTokensService {
            inner,
            tokens: self.clone(),
        }
    }
}

/// A service with [`StaticTokens`] around it.
///
/// # Cancel safety
///
/// Dropping the future of a call drops the call of the service inside.
#[derive(Clone)]
pub struct StaticTokensService<S> {
    inner: S,
    tokens: StaticTokens,
}

impl<S, B, R> Service<Request<B>> for StaticTokensService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: From<Bytes> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        if !is_preflight(&head)
            && let Err(reason) = self.tokens.admit(&mut head)
        {
            tracing::debug!(denied = ?reason, "refused a request");
            let refused = PARAMS.response(&reason).map(R::from);
            return Box::pin(std::future::ready(Ok(refused)));
        }
        let calling = self.inner.call(Request::from_parts(head, body));
        Box::pin(async move {
            let mut response = calling.await?;
            let missing = response.extensions().get::<InsufficientScope>().cloned();
            if let Some(missing) = missing {
                challenge_scopes(&missing, response.headers_mut());
            }
            Ok(response)
        })
    }
}

fn challenge_scopes(missing: &InsufficientScope, headers: &mut HeaderMap) {
    let reason = DenialReason::ScopeMissing {
        scheme: Scheme::Bearer,
        required: missing.required().iter().cloned().collect(),
        missing: missing.missing().to_vec(),
    };
    PARAMS.challenge(&reason, headers);
}

fn misuse(what: &str) -> Error {
    Error::Misuse { what: what.into() }
}

impl std::fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let principals = self.principals.iter().map(|(_, principal)| principal);
        f.debug_tuple("StaticTokens")
            .field(&principals.collect::<Vec<_>>())
            .finish()
    }
}

impl<S> std::fmt::Debug for StaticTokensService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticTokensService")
            .finish_non_exhaustive()
    }
}

/// There are no metadata, because there is no authorization server to name.
const PARAMS: ChallengeParams<'static> = ChallengeParams {
    metadata: None,
    scopes: &BTreeSet::new(),
    scheme: Scheme::Bearer,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(tokens: &[(&str, Principal)]) -> String {
        StaticTokens::new(tokens.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn tokens_that_could_never_be_sent_or_are_ambiguous_are_refused() {
        let ada = || Principal::named("ada");

        for token in ["", "two words", "ä", "a,b"] {
            let error = refused(&[(token, ada())]);
            assert!(error.contains("the token of `ada`"), "{error}");
            assert!(token.is_empty() || !error.contains(token), "{error}");
        }
        let error = refused(&[("same", ada()), ("same", Principal::named("bot"))]);
        assert!(error.contains("the token of `bot`"), "{error}");
        let error = refused(&[("token", Principal::anonymous())]);
        assert!(error.contains("anonymous"), "{error}");
    }

    #[test]
    fn debug_shows_principals_and_no_tokens() {
        let tokens = StaticTokens::new([("s3cret", Principal::named("ada"))]).unwrap();

        assert_eq!(format!("{tokens:?}"), r#"StaticTokens([Principal("ada")])"#);
    }
}
