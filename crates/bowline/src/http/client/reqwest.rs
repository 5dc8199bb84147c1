//! A `reqwest` client of the application's own, for our requests.

use std::error::Error as StdError;

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};

use super::{HttpSend, RequestBody, ResponseBody};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// Sends through a `reqwest` client: with its pool, its TLS, its proxies and whatever else it was built with.
///
/// Build it with `redirect::Policy::none()`, so that redirects are followed as they should be: within the origin
/// only. By default `reqwest` follows them anywhere, and a response from another origin is refused when it is
/// too late. Its total timeout, if it has one, ends streams as well.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let http = reqwest::Client::builder()
///     .redirect(reqwest::redirect::Policy::none())
///     .build()?;
/// let client = bowline::Client::connect("http://localhost:8000/mcp").http(http).await?;
/// # Ok(()) }
/// ```
impl HttpSend for reqwest::Client {
    fn send(
        &self,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let (client, uri) = (self.clone(), request.uri().clone());
        let (head, body) = request.into_parts();
        Box::pin(async move {
            let response = loop {
                // Wrapped and not copied, so that it is known when a connection has taken it.
                let body = reqwest::Body::wrap(body.again());
                let request = reqwest::Request::try_from(Request::from_parts(head.clone(), body));
                let sending = client.execute(request.map_err(|error| failed(&uri, error))?);
                match sending.await {
                    Ok(response) => break response,
                    // Whoever was making the connection has let go. Somebody else has to make it.
                    Err(error) if error.is_connect() && was_left_waiting(&error) => {}
                    Err(error) => return Err(failed(&uri, error)),
                }
            };
            must_be_from(&uri, response.url().as_str())?;
            Ok(Response::from(response).map(ResponseBody::new))
        })
    }
}

impl RequestBody {
    /// The same body, for a request that did not get as far as a connection.
    fn again(&self) -> Self {
        Self::new(
            self.bytes.clone().unwrap_or_default(),
            self.handed_over.clone(),
        )
    }
}

/// Whether a request waited for a connection that another request was making, and that one was dropped. It
/// never left then. Hyper has no name for that, only words.
fn was_left_waiting(no_connection: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(no_connection);
    while let Some(cause) = next {
        if cause.to_string() == NO_LONGER_WANTED {
            return true;
        }
        next = cause.source();
    }
    false
}

fn must_be_from(asked: &Uri, answered: &str) -> Result<()> {
    let origin = |uri: &Uri| -> Option<(Scheme, Authority)> {
        Some((uri.scheme()?.clone(), uri.authority()?.clone()))
    };
    let from: Option<Uri> = answered.parse().ok();
    if from.as_ref().and_then(origin) == origin(asked) {
        return Ok(());
    }
    Err(Error::protocol(format!(
        "the answer is from another origin, {answered}; build the reqwest client without redirects"
    )))
}

fn failed(uri: &Uri, error: reqwest::Error) -> Error {
    let what = match error.is_connect() {
        true => format!("no connection to {uri}"),
        false => format!("the request to {uri} failed"),
    };
    Error::Transport {
        what,
        // Its own text would repeat the URL.
        source: Some(error.without_url().into()),
    }
}

const NO_LONGER_WANTED: &str = "request was canceled";
