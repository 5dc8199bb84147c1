//! [`SimulatedUser`]: answers consent pages in place of a user with a browser.

use bowline::http::client::{HttpClient, HyperClient, RequestBody};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, Request, Response, Uri};

/// A simulated user, who answers consent pages without a browser.
///
/// # Examples
///
/// ```no_run
/// # async fn example(url: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let callback = bowline_example_authorization_server::SimulatedUser::new("ada").allow(url).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SimulatedUser {
    name: String,
}

impl SimulatedUser {
    /// Creates a user with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Opens an authorization URL, allows the request, and returns the URL of the redirect.
    ///
    /// # Errors
    ///
    /// If the page cannot be fetched, or contains no consent form.
    ///
    /// # Cancel safety
    ///
    /// The form may or may not have been submitted.
    pub async fn allow(&self, url: &str) -> Result<String, BoxError> {
        self.decide(url, "allow").await
    }

    /// Opens an authorization URL, denies the request, and returns the URL of the redirect.
    ///
    /// # Errors
    ///
    /// If the page cannot be fetched, or contains no consent form.
    ///
    /// # Cancel safety
    ///
    /// The form may or may not have been submitted.
    pub async fn deny(&self, url: &str) -> Result<String, BoxError> {
        self.decide(url, "deny").await
    }

    async fn decide(&self, url: &str, decision: &str) -> Result<String, BoxError> {
        let url: Uri = url.parse()?;
        let mut request = Request::new(RequestBody::from(Bytes::new()));
        *request.uri_mut() = url.clone();
        let response = HyperClient::plain().send(request).await?;
        if let Some(redirect_url) = location(&response) {
            return Ok(redirect_url);
        }
        let page = response.into_body().collect(64 * 1024).await?;
        let page = std::str::from_utf8(&page)?;
        let ticket = page.split("name=\"ticket\" value=\"").nth(1);
        let ticket = ticket.and_then(|rest| rest.split('"').next());
        let ticket = ticket.ok_or_else(|| format!("no consent form on the page: {page}"))?;

        let form = [
            ("ticket", ticket),
            ("user", &self.name),
            ("decision", decision),
        ];
        let form = serde_urlencoded::to_string(form)?;
        let mut request = Request::new(RequestBody::from(Bytes::from(form)));
        *request.method_mut() = Method::POST;
        let mut parts = url.into_parts();
        parts.path_and_query = Some("/consent".parse()?);
        *request.uri_mut() = Uri::from_parts(parts)?;
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, form);
        let response = HyperClient::plain().send(request).await?;
        location(&response).ok_or_else(|| "the response is not a redirect".into())
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn location<B>(response: &Response<B>) -> Option<String> {
    let location = response.headers().get(LOCATION)?;
    location.to_str().ok().map(str::to_owned)
}
