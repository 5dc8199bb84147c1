//! Requests to the authorization server: whoever waits for them has little time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline::http::client::HttpSend;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use url::Url;

use crate::client::fetch::Fetch as Sender;
use crate::client::guard::Guard;

/// Sends requests to places that others may have named, and reads answers that are JSON.
#[derive(Clone)]
pub(super) struct Fetch {
    /// Made when it is first needed: the system's certificates are not read for nothing.
    sender: Arc<OnceLock<Sender>>,
    guard: Guard,
}

impl Fetch {
    /// To public places; also to this machine, if that is where the operator says that the issuer is.
    pub(super) fn for_issuer_at(url: &str) -> Self {
        let url = Url::parse(url);
        Self {
            sender: Arc::default(),
            guard: url.map_or(Guard::Public, |url| Guard::of_server(&url)),
        }
    }

    /// Reaches addresses of our own network too.
    pub(super) fn within_private_network(&mut self) {
        *self = Self {
            sender: Arc::default(),
            guard: Guard::Private,
        };
    }

    /// Sends requests by `send`.
    pub(super) fn send_by(&mut self, send: impl HttpSend) {
        self.sender = Arc::new(OnceLock::from(Sender::by(Arc::new(send))));
    }

    /// The document at `uri`.
    pub(super) async fn document(&self, uri: &Uri) -> Result<Bytes, String> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = uri.clone();
        self.json(request).await
    }

    /// The body of the response to a request, if it is a good one.
    pub(super) async fn json(&self, mut request: Request<Bytes>) -> Result<Bytes, String> {
        let uri = request.uri().to_string();
        let admitted = self.guard.admit("the URL", &uri);
        admitted.map_err(|error| error.to_string())?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let sender = self.sender()?;
        let answer = tokio::time::timeout(WITHIN, sender.send(request)).await;
        let uri = crate::text::readable(&uri, 1000);
        let answer = answer.map_err(|_| format!("{uri} does not answer within {WITHIN:?}"))?;
        let response = answer.map_err(|error| chain(&error))?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(format!("{uri} answers with status {status}")),
        }
    }

    fn sender(&self) -> Result<&Sender, String> {
        if let Some(sender) = self.sender.get() {
            return Ok(sender);
        }
        let made = Sender::guarded(self.guard).map_err(|error| chain(&error))?;
        Ok(self.sender.get_or_init(|| made))
    }
}

/// An error with what is underneath, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

const WITHIN: Duration = Duration::from_secs(5);
