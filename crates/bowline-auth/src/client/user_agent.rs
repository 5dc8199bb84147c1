//! Whoever takes a person to an authorization server and back.

use std::error::Error as StdError;
use std::sync::Arc;

use bowline::exchange::BoxFuture;

/// What an application's own code may fail with.
pub type AppError = Box<dyn StdError + Send + Sync>;

/// Takes a person to an authorization server and back: a browser, in most cases.
///
/// [`Loopback`](super::Loopback) is for applications that can open a browser, [`OwnBrowser`] for those that
/// also see where it goes.
pub trait UserAgent: Send + Sync + 'static {
    /// Gets ready for somebody to come back.
    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn Visit>, AppError>>;
}

/// One way to an authorization server and back. Dropping it means that nobody is waited for any more.
pub trait Visit: Send {
    /// Where the person is to be sent back to.
    fn redirect_uri(&self) -> &str;

    /// Takes the person to `url`, and waits until they come back. Gives the whole address that they came back
    /// to.
    ///
    /// The address was checked: it begins with `https://`, or with `http://` and this machine. Hand it to
    /// the browser as it is, never to a shell.
    fn open(self: Box<Self>, url: String) -> BoxFuture<'static, Result<String, AppError>>;
}

/// An application that opens the browser itself, and catches where the authorization server sends it.
///
/// # Examples
///
/// ```
/// use bowline_auth::client::{OAuth, OwnBrowser};
/// # async fn show_in_a_view(url: String) -> Result<String, std::io::Error> { Ok(url) }
///
/// let browser = OwnBrowser::new("https://app.example.com/callback", async |url| {
///     Ok(show_in_a_view(url).await?)
/// });
/// let oauth = OAuth::new("https://example.com/mcp").user_agent(browser);
/// ```
pub struct OwnBrowser {
    redirect_uri: String,
    open: Arc<Open>,
}

type Open = dyn Fn(String) -> BoxFuture<'static, Result<String, AppError>> + Send + Sync;

impl OwnBrowser {
    /// `open` is given the address to go to, and gives the one that the person was sent back to.
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

impl UserAgent for OwnBrowser {
    fn prepare(&self) -> BoxFuture<'_, Result<Box<dyn Visit>, AppError>> {
        let visit = OwnVisit {
            redirect_uri: self.redirect_uri.clone(),
            open: self.open.clone(),
        };
        Box::pin(async { Ok(Box::new(visit) as Box<dyn Visit>) })
    }
}

impl std::fmt::Debug for OwnBrowser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnBrowser")
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

struct OwnVisit {
    redirect_uri: String,
    open: Arc<Open>,
}

impl Visit for OwnVisit {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn open(self: Box<Self>, url: String) -> BoxFuture<'static, Result<String, AppError>> {
        (self.open)(url)
    }
}
