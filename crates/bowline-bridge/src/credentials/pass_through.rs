//! [`PassThrough`]: sends the token that the client presented to the bridge.

use std::sync::Arc;

use bowline::Result;
use bowline::exchange::BoxFuture;
use bowline::http::client::{Authorizer, Refusal};
use http::header::AUTHORIZATION;
use http::{HeaderValue, request};

use super::{Origin, refused, usable};
use crate::client_token::TokenCell;

/// Authorizes the requests of one principal with its own token.
pub(super) struct PassThrough {
    /// The only server that gets the token.
    server: Origin,
    latest: Arc<TokenCell>,
}

impl PassThrough {
    pub(super) fn new(server: Origin, latest: Arc<TokenCell>) -> Self {
        Self { server, latest }
    }

    fn header(&self) -> Result<HeaderValue> {
        let latest = usable(&self.latest)?;
        if latest.is_bound() {
            return Err(refused(
                "the client's token is bound to a key (DPoP), so it cannot be passed through",
            ));
        }
        let value = HeaderValue::try_from(format!("Bearer {}", latest.token().expose()));
        let mut value = value.map_err(|_| refused("the client's token is not a valid header"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Authorizer for PassThrough {
    fn sign<'a>(&'a self, head: &'a mut request::Parts) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            if Origin::of(&head.uri).as_ref() == Some(&self.server) {
                head.headers.insert(AUTHORIZATION, self.header()?);
            }
            Ok(())
        })
    }

    fn answer<'a>(&'a self, refusal: &'a Refusal) -> BoxFuture<'a, Result<()>> {
        // Only the client can obtain another token.
        Box::pin(async { Err(refusal.to_error()) })
    }

    fn identity(&self) -> Option<String> {
        self.latest.latest().principal().name().map(str::to_owned)
    }
}
