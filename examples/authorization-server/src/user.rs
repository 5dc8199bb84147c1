//! A person without a browser.

use bowline::http::client::{HttpSend, HyperSend, RequestBody};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, Request, Response, Uri};

/// A person without a browser, who allows whatever they are asked.
///
/// # Examples
///
/// ```no_run
/// # async fn example(url: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let callback = bowline_example_authorization_server::User::named("ada").visit(url).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct User {
    name: String,
}

impl User {
    /// Somebody of this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Visits the page where a client wants to be allowed something, allows it, and returns where the
    /// page sends them then.
    ///
    /// # Errors
    ///
    /// If the page cannot be had, or has no question on it.
    ///
    /// # Cancel safety
    ///
    /// The page may have been answered or not.
    pub async fn visit(
        &self,
        url: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let url: Uri = url.parse()?;
        let mut request = Request::new(RequestBody::from(Bytes::new()));
        *request.uri_mut() = url.clone();
        let response = HyperSend::plain().send(request).await?;
        if let Some(elsewhere) = location(&response) {
            return Ok(elsewhere);
        }
        let page = response.into_body().collect(64 * 1024).await?;
        let page = std::str::from_utf8(&page)?;
        let ticket = page.split("name=\"ticket\" value=\"").nth(1);
        let ticket = ticket.and_then(|rest| rest.split('"').next());
        let ticket = ticket.ok_or_else(|| format!("there is no question on the page: {page}"))?;

        let said = [
            ("ticket", ticket),
            ("user", &self.name),
            ("decision", "allow"),
        ];
        let said = serde_urlencoded::to_string(said)?;
        let mut request = Request::new(RequestBody::from(Bytes::from(said)));
        *request.method_mut() = Method::POST;
        let mut parts = url.into_parts();
        parts.path_and_query = Some("/consent".parse()?);
        *request.uri_mut() = Uri::from_parts(parts)?;
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, form);
        let response = HyperSend::plain().send(request).await?;
        location(&response).ok_or_else(|| "the page sends nobody anywhere".into())
    }
}

fn location<B>(response: &Response<B>) -> Option<String> {
    let location = response.headers().get(LOCATION)?;
    location.to_str().ok().map(str::to_owned)
}
