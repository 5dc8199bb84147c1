//! [`IssuerFetch`]: requests of the resource server to its issuers, with a short time limit.

use std::sync::Arc;
use std::time::Duration;

use bowline::http::RedactedUrl;
use bowline::http::client::HttpClient;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use url::Url;

use crate::client::address_policy::AddressPolicy;
use crate::client::fetch::Fetch;
use crate::sanitize::sanitize;

/// Sends requests to URLs that the address policy admits, and expects JSON.
#[derive(Clone)]
pub(super) struct IssuerFetch {
    fetch: Fetch,
    policy: AddressPolicy,
}

impl IssuerFetch {
    /// Allows public addresses, and loopback addresses if the configured issuer is on this machine.
    pub(super) fn for_issuer_at(url: &str) -> Self {
        let url = Url::parse(url);
        Self::with_policy(url.map_or(AddressPolicy::Public, |url| AddressPolicy::for_server(&url)))
    }

    /// Allows private addresses.
    pub(super) fn allow_private_addresses(&mut self) {
        *self = Self::with_policy(AddressPolicy::Private);
    }

    fn with_policy(policy: AddressPolicy) -> Self {
        Self {
            fetch: Fetch::with_policy(policy),
            policy,
        }
    }

    /// Sends requests through `client`.
    pub(super) fn http_client(&mut self, client: impl HttpClient) {
        self.fetch = Fetch::new(Arc::new(client));
    }

    /// Fetches the document at `uri`.
    pub(super) async fn document(&self, uri: &Uri) -> Result<Bytes, String> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = uri.clone();
        self.json(request).await
    }

    /// Sends a request and returns the body of a 200 response.
    pub(super) async fn json(&self, mut request: Request<Bytes>) -> Result<Bytes, String> {
        let uri = request.uri().to_string();
        let admitted = self.policy.admit("the URL", &uri);
        admitted.map_err(|error| error.to_string())?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let response = tokio::time::timeout(REQUEST_TIMEOUT, self.fetch.send(request)).await;
        let uri = sanitize(RedactedUrl::new(&uri).as_str(), 1000);
        let response =
            response.map_err(|_| format!("no response from {uri} within {REQUEST_TIMEOUT:?}"))?;
        let response = response.map_err(|error| chain(&error))?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(format!("{uri} responded with status {status}")),
        }
    }
}

/// Formats an error and its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
