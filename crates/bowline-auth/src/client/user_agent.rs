//! [`UserAgent`]: opens the authorization URL for the user, and receives the redirect.

use std::error::Error as StdError;
use std::sync::Arc;

use bowline::exchange::BoxFuture;

/// An error from the application's own code.
pub type AppError = Box<dyn StdError + Send + Sync>;

/// Opens the authorization URL for the user, usually in a browser, and receives the redirect.
///
/// Use [`Loopback`](super::Loopback) if the application can open a browser, [`EmbeddedBrowser`] if it also sees the
/// browser's navigation.
pub trait UserAgent: Send + Sync + 'static {
    /// Prepares for a redirect, for example by binding a listener.
    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn AuthorizationPrompt>, AppError>>;
}

/// One authorization request. Dropping it cancels the wait for the redirect.
pub trait AuthorizationPrompt: Send {
    /// Returns the redirect URI.
    fn redirect_uri(&self) -> &str;

    /// Opens `url`, waits for the redirect, and returns its full URL.
    ///
    /// `url` was checked: it uses `https://`, or `http://` with a loopback host. Pass it to the browser unchanged,
    /// never through a shell.
    fn open(self: Box<Self>, url: String) -> BoxFuture<'static, Result<String, AppError>>;
}

/// A user agent for applications that control the browser and intercept the redirect.
///
/// # Examples
///
/// ```
/// use bowline_auth::client::{EmbeddedBrowser, OAuth};
/// # #[derive(Clone)] struct View;
/// # impl View { async fn show(&self, url: String) -> Result<String, std::io::Error> { Ok(url) } }
///
/// let view = View;
/// let browser = EmbeddedBrowser::new("https://app.example.com/callback", move |url| {
///     let view = view.clone();
///     async move { Ok(view.show(url).await?) }
/// });
/// let oauth = OAuth::new("https://example.com/mcp").user_agent(browser);
/// ```
pub struct EmbeddedBrowser {
    redirect_uri: String,
    open: Arc<OpenFn>,
}

type OpenFn = dyn Fn(String) -> BoxFuture<'static, Result<String, AppError>> + Send + Sync;

impl EmbeddedBrowser {
    /// Creates a user agent. `open` receives the authorization URL, and returns the full URL of the redirect.
    pub fn new<F, Fut>(redirect_uri: impl Into<String>, open: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, AppError>> + Send + 'static,
    {
        Self {
            redirect_uri: redirect_uri.into(),
            open: Arc::new(move |url| Box::pin(open(url))),
        }
    }
}

impl UserAgent for EmbeddedBrowser {
    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn AuthorizationPrompt>, AppError>> {
        let prompt = EmbeddedPrompt {
            redirect_uri: self.redirect_uri.clone(),
            open: self.open.clone(),
        };
        Box::pin(async { Ok(Box::new(prompt) as Box<dyn AuthorizationPrompt>) })
    }
}

impl std::fmt::Debug for EmbeddedBrowser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedBrowser")
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

struct EmbeddedPrompt {
    redirect_uri: String,
    open: Arc<OpenFn>,
}

impl AuthorizationPrompt for EmbeddedPrompt {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn open(self: Box<Self>, url: String) -> BoxFuture<'static, Result<String, AppError>> {
        (self.open)(url)
    }
}
