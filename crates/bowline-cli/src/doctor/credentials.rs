//! The token of a user who has signed in: one that is kept from earlier, or a new one after `--sign-in`.

use std::sync::Arc;

use bowline::http::client::Authorizer;
use bowline_auth::client::OAuth;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Uri};

use crate::failure::Failure;
use crate::interrupt::until_interrupted;
use crate::target::{UrlTarget, finish};

/// Finds tokens for one server.
#[derive(Default)]
pub(crate) struct Credentials {
    /// `None` if the user has given a token, or forbids signing in.
    sign_in: Option<Arc<OAuth>>,
    /// Why signing in failed.
    pub(crate) failure: Option<String>,
}

impl Credentials {
    /// Prepares to use kept tokens.
    pub(crate) fn new(target: &UrlTarget) -> Self {
        Self {
            sign_in: target.oauth("Bowline").map(Arc::new),
            failure: None,
        }
    }

    /// Connects to the server as every client does, which opens a browser if the server refuses that. A failure is kept
    /// for the report: the examination may show its cause.
    ///
    /// # Errors
    ///
    /// If the user interrupts it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(crate) async fn sign_in(&mut self, target: &UrlTarget) -> Result<(), Failure> {
        let Some(sign_in) = &self.sign_in else {
            return Ok(());
        };
        let builder = target.client().authorizer(sign_in.clone());
        let connecting = async { Ok(builder.await) };
        match until_interrupted(connecting).await? {
            Ok(client) => finish(client).await,
            Err(error) => self.failure = Some(crate::failure::chain(&error)),
        }
        Ok(())
    }

    /// Returns the `Authorization` header for requests to the server; `None` if there is no token.
    ///
    /// # Errors
    ///
    /// With a sentence, if there is one that cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub(crate) async fn authorization(&self, uri: &Uri) -> Result<Option<HeaderValue>, String> {
        let Some(sign_in) = &self.sign_in else {
            return Ok(None);
        };
        let mut request = http::Request::new(());
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = uri.clone();
        let (mut head, ()) = request.into_parts();
        let signed = sign_in.sign(&mut head).await;
        signed.map_err(|error| crate::failure::chain(&error))?;
        if head.headers.contains_key("dpop") {
            return Err(
                "the kept token is bound to a key (DPoP), and the doctor sends no proofs"
                    .to_owned(),
            );
        }
        Ok(head.headers.remove(AUTHORIZATION))
    }
}
