//! [`HttpClient`] for `reqwest::Client`.

use std::error::Error as StdError;

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};

use super::{HttpClient, RequestBody, ResponseBody};
use crate::exchange::BoxFuture;
use crate::http::RedactedUrl;
use crate::{Error, Result};

/// Sends requests with a `reqwest` client and its settings: pool, TLS, proxies.
///
/// Build it with `redirect::Policy::none()`: bowline follows redirects itself, within the origin only. `reqwest`
/// follows them anywhere by default, and a response from another origin is refused only after the request was sent
/// there. A total timeout of the `reqwest` client also ends SSE streams.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let http = reqwest::Client::builder()
///     .redirect(reqwest::redirect::Policy::none())
///     .build()?;
/// let client = bowline::Client::connect("http://localhost:8000/mcp").http_client(http).await?;
/// # Ok(()) }
/// ```
impl HttpClient for reqwest::Client {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let (client, uri) = (self.clone(), request.uri().clone());
        let (head, body) = request.into_parts();
        Box::pin(async move {
            let response = loop {
                // Wrapped rather than copied, so that `SendState` records when a connection takes it.
                let body = reqwest::Body::wrap(body.clone_for_retry());
                let request = reqwest::Request::try_from(Request::from_parts(head.clone(), body));
                let sending = client.execute(request.map_err(|error| failed(&uri, error))?);
                match sending.await {
                    Ok(response) => break response,
                    // The request that was opening this connection was dropped; open another one.
                    Err(error) if error.is_connect() && was_connect_abandoned(&error) => {}
                    Err(error) => return Err(failed(&uri, error)),
                }
            };
            check_origin(&uri, response.url().as_str())?;
            Ok(Response::from(response).map(ResponseBody::new))
        })
    }
}

impl RequestBody {
    /// Returns the same body, for another attempt after a failure to connect.
    fn clone_for_retry(&self) -> Self {
        Self::new(
            self.bytes.clone().unwrap_or_default(),
            self.send_state.clone(),
        )
    }
}

/// Returns whether the request waited for a connection that another request was opening, and that request was dropped.
/// It was not sent then. hyper reports this only by the text of the error.
fn was_connect_abandoned(no_connection: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(no_connection);
    while let Some(cause) = next {
        if cause.to_string() == CANCELED_TEXT {
            return true;
        }
        next = cause.source();
    }
    false
}

fn check_origin(requested: &Uri, response_url: &str) -> Result<()> {
    let origin = |uri: &Uri| -> Option<(Scheme, Authority)> {
        Some((uri.scheme()?.clone(), uri.authority()?.clone()))
    };
    let from: Option<Uri> = response_url.parse().ok();
    if from.as_ref().and_then(origin) == origin(requested) {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "received a response from another origin, {}; build the reqwest client with `Policy::none()`",
        RedactedUrl::new(response_url)
    )))
}

fn failed(uri: &Uri, error: reqwest::Error) -> Error {
    let shown = RedactedUrl::new(uri);
    let what = match error.is_connect() {
        true => format!("failed to connect to {shown}"),
        false => format!("failed to send the request to {shown}"),
    };
    Error::Transport {
        what,
        // `what` names the URL already.
        source: Some(error.without_url().into()),
    }
}

const CANCELED_TEXT: &str = "request was canceled";
