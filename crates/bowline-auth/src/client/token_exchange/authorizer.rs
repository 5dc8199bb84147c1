//! [`TokenExchangeAuthorizer`]: authorizes the requests of one principal with exchanged tokens.

use std::fmt;
use std::sync::Arc;

use bowline::exchange::BoxFuture;
use bowline::http::RedactedUrl;
use bowline::http::client::{Authorizer, Refusal, RefusalReason};
use http::header::AUTHORIZATION;
use http::{HeaderValue, request};
use url::Url;

use super::{SubjectFn, SubjectToken, TokenExchange};
use crate::client::{Error, Result};

/// Authorizes requests to one MCP server with the tokens of a [`TokenExchange`]. Created by
/// [`TokenExchange::authorizer`].
///
/// A token that the server refuses with 401 is exchanged again, once per request.
pub struct TokenExchangeAuthorizer {
    exchange: Arc<TokenExchange>,
    server: Url,
    subject: Arc<SubjectFn>,
}

impl TokenExchangeAuthorizer {
    pub(super) fn new(exchange: Arc<TokenExchange>, server: Url, subject: Arc<SubjectFn>) -> Self {
        Self {
            exchange,
            server,
            subject,
        }
    }

    fn subject(&self) -> Result<SubjectToken> {
        (self.subject)().map_err(|source| Error::Application {
            what: "failed to get the token to exchange",
            source,
        })
    }

    async fn header(&self) -> Result<HeaderValue> {
        let token = self.exchange.exchange(&self.subject()?).await?;
        let value = HeaderValue::try_from(format!("Bearer {}", token.expose()));
        let mut value =
            value.map_err(|_| Error::protocol("the access token is not a valid header value"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn answer_refusal(&self, refusal: &Refusal) -> Result<()> {
        let sent = refusal.sent.as_ref().and_then(|sent| sent.to_str().ok());
        let sent = sent.and_then(|sent| sent.strip_prefix("Bearer "));
        match (refusal.reason, sent) {
            (RefusalReason::Unauthenticated, Some(token)) => {
                self.exchange.forget(&self.subject()?, token).await;
                Ok(())
            }
            (RefusalReason::InsufficientScope, _) => {
                let scopes = refusal.challenges.iter().find_map(|one| one.scope());
                Err(Error::insufficient_scope(scopes.unwrap_or_default()))
            }
            _ => Err(Error::unsupported(
                "the server requires another authorization than an exchanged token",
            )),
        }
    }
}

impl Authorizer for TokenExchangeAuthorizer {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let url = Url::parse(&head.uri.to_string());
            if !url.is_ok_and(|url| url.origin() == self.server.origin()) {
                return Ok(());
            }
            let header = self.header().await;
            let header = header.map_err(|error| unauthorized(None, error))?;
            head.headers.insert(AUTHORIZATION, header);
            Ok(())
        })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, bowline::Result<()>> {
        Box::pin(async {
            let answered = self.answer_refusal(refusal).await;
            answered.map_err(|error| unauthorized(Some(refusal), error))
        })
    }

    fn identity(&self) -> Option<String> {
        let subject = self.subject().ok()?;
        Some(format!("{} {}", self.server, subject.principal))
    }
}

fn unauthorized(refusal: Option<&Refusal>, error: Error) -> bowline::Error {
    bowline::Error::Unauthorized {
        challenges: refusal.map_or_else(Vec::new, |refusal| refusal.challenges.clone()),
        source: Some(error.into()),
    }
}

impl fmt::Debug for TokenExchangeAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenExchangeAuthorizer")
            .field("server", &RedactedUrl::new(&self.server))
            .finish_non_exhaustive()
    }
}
